/* Element types: one list (dcp/tensor.h) gives names and sizes. */
#include <string.h>

#include "dcp/tensor.h"

#define NAME(id, name, bytes) name,
#define BYTES(id, name, bytes) bytes,
static const char *const names[] = {NULL, DCP_DTYPE_LIST(NAME)};
static const uint64_t sizes[] = {0, DCP_DTYPE_LIST(BYTES)};

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
    return DCP_ERR_NOT_FOUND;
}
