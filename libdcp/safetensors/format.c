/* Formatting of safetensors headers. */
#include <endian.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "dcp/safetensors.h"
#include "safetensors/header.h"

static json_t *entry_json(const dcp_tensor *tensor, uint64_t begin, uint64_t end) {
    json_t *shape = json_array();
    for (uint32_t d = 0; d < tensor->ndim; d++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dcp_dtype_name(tensor->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static int add_tensor(json_t *root, const dcp_tensor *tensor, uint64_t *offset, dcp_error *err) {
    uint64_t bytes, end;
    if (!tensor->path || !dcp_dtype_name(tensor->dtype) || tensor->ndim > DCP_MAX_DIMS)
        return core_fail(err, DCP_ERR_ARG, "safetensors: not a tensor (name, dtype, dimensions)");
    if (st_tensor_bytes(tensor, &bytes) || __builtin_add_overflow(*offset, bytes, &end) ||
        end > INT64_MAX)
        return core_fail(err, DCP_ERR_ARG, "safetensors: the size of '%s' overflows", tensor->path);
    if (json_object_get(root, tensor->path))
        return core_fail(err, DCP_ERR_ARG, "safetensors: the name '%s' is used twice or reserved",
                         tensor->path);
    if (json_object_set_new(root, tensor->path, entry_json(tensor, *offset, end)))
        return core_fail(err, DCP_ERR_ARG, "safetensors: the name '%s' is not UTF-8", tensor->path);
    *offset = end;
    return DCP_OK;
}

static int frame(const char *text, char **out, uint64_t *bytes_out, dcp_error *err) {
    uint64_t length = strlen(text), padded = (length + 7) / 8 * 8, le = htole64(padded);
    if (padded > ST_MAX_HEADER)
        return core_fail(err, DCP_ERR_ARG,
                         "safetensors: the header would have %llu bytes, more than %u: use several "
                         "files",
                         (unsigned long long)padded, ST_MAX_HEADER);
    char *header = malloc(ST_PREFIX_BYTES + padded);
    if (!header) return core_fail_memory(err, ST_PREFIX_BYTES + padded);
    memcpy(header, &le, sizeof le);
    memcpy(header + ST_PREFIX_BYTES, text, length);
    memset(header + ST_PREFIX_BYTES + length, ' ', padded - length);
    *out = header;
    *bytes_out = ST_PREFIX_BYTES + padded;
    return DCP_OK;
}

int st_header_format(const dcp_tensor *tensors, size_t n, char **out, uint64_t *bytes_out,
                     dcp_error *err) {
    uint64_t offset = 0;
    int status = DCP_OK;
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (size_t i = 0; status == DCP_OK && i < n; i++)
        status = add_tensor(root, &tensors[i], &offset, err);
    if (status == DCP_OK) {
        char *text = json_dumps(root, JSON_COMPACT);
        status = text ? frame(text, out, bytes_out, err) : core_fail_memory(err, n * 100);
        free(text);
    }
    json_decref(root);
    return status;
}

int dcp_st_header(const dcp_tensor *tensors, size_t n, char **out, uint64_t *bytes,
                  dcp_error *err) {
    if (!out || !bytes || (n && !tensors))
        return core_fail(err, DCP_ERR_ARG, "dcp_st_header: tensors, out or bytes is NULL");
    return st_header_format(tensors, n, out, bytes, err);
}
