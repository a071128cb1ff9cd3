/* Element types: one list (dcp/tensor.h) gives names and sizes. */
#include <string.h>

#include "dcp/tensor.h"

#define NAME(id, name, bytes) name,
#define BYTES(id, name, bytes) bytes,
static const char *const names[] = {NULL, DCP_DTYPE_LIST(NAME)};
static const uint64_t sizes[] = {0, DCP_DTYPE_LIST(BYTES)};
static const char *const left_out[] = {"F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4", "F6_E2M3", "F6_E3M2"};

const char *dcp_dtype_name(dcp_dtype dtype) {
    return (unsigned)dtype < DCP_DTYPE_COUNT ? names[dtype] : NULL;
}

uint64_t dcp_dtype_bytes(dcp_dtype dtype) {
    return (unsigned)dtype < DCP_DTYPE_COUNT ? sizes[dtype] : 0;
}

int dcp_dtype_parse(const char *name, dcp_dtype *out) {
    if (!name || !out) return DCP_ERR_ARG;
    for (unsigned i = DCP_DTYPE_NONE + 1; i < DCP_DTYPE_COUNT; i++)
        if (!strcmp(name, names[i])) {
            *out = (dcp_dtype)i;
            return DCP_OK;
        }
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (!strcmp(name, left_out[i])) return DCP_ERR_UNSUPPORTED;
    return DCP_ERR_NOT_FOUND;
}
