/* One safetensors file: header and data. The first byte says what follows. 1: a whole file;
 * otherwise a header whose length is corrected, with the number of data bytes that the next two
 * bytes give. */
#include "core/bytes.h"
#include "dcp/safetensors.h"
#include "fuzz.h"
#include "safetensors/header.h"

static void write_file(const uint8_t *data, size_t size) {
    if (data[0] == 1) {
        fuzz_file("f.safetensors", data + 1, size - 1, 0);
        return;
    }
    size_t zeros = (size_t)data[1] | (size_t)data[2] << 8, length = size - 3;
    unsigned char *file = malloc(8 + length);
    PROMISE(file);
    core_put_u64(file, length);
    memcpy(file + 8, data + 3, length);
    fuzz_file("f.safetensors", file, 8 + length, zeros);
    free(file);
}

/* Names are valid for a checkpoint. A tensor can be read completely, and not a byte beyond. Files
 * have at most 64 KiB and the header. */
static uint64_t read_tensor(dcp_st_reader *reader, const dcp_tensor *t) {
    static unsigned char buffer[1 << 20];
    uint64_t bytes = dcp_tensor_bytes(t);
    PROMISE(bytes <= sizeof buffer && dcp_st_find(reader, t->path));
    PROMISE(*t->path && !strchr(t->path, '/') && strcmp(t->path, ".") && strcmp(t->path, ".."));
    PROMISE(!dcp_st_read(reader, t->path, 0, bytes, buffer, NULL));
    PROMISE(dcp_st_read(reader, t->path, bytes, 1, buffer, NULL) == DCP_ERR_ARG);
    PROMISE(dcp_st_read(reader, t->path, UINT64_MAX, 2, buffer, NULL) == DCP_ERR_ARG);
    return bytes;
}

/* What was accepted can be written, and reads back as the same tensors. */
static void write_again(const dcp_st_reader *reader, uint64_t data_bytes) {
    size_t n = dcp_st_tensors(reader), m = 0;
    dcp_tensor *tensors = calloc(n + 1, sizeof *tensors);
    char *header = NULL;
    uint64_t bytes;
    safetensors_entry *entries = NULL;
    PROMISE(tensors);
    for (size_t i = 0; i < n; i++) tensors[i] = *dcp_st_tensor(reader, i);
    PROMISE(!dcp_st_header(tensors, n, &header, &bytes, NULL));
    PROMISE(!safetensors_header_parse("again", header + ST_PREFIX_BYTES, bytes - ST_PREFIX_BYTES,
                                      data_bytes, &entries, &m, NULL));
    PROMISE(n == m);
    for (size_t i = 0; i < n; i++)
        PROMISE(!strcmp(entries[i].tensor.path, tensors[i].path) &&
                entries[i].tensor.dtype == tensors[i].dtype);
    safetensors_entries_free(entries, m);
    free(header);
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    char path[96];
    dcp_error err = {0};
    dcp_st_reader *reader = NULL;
    write_file(data, size);
    snprintf(path, sizeof path, "%s/f.safetensors", fuzz_folder());
    int status = dcp_st_open(path, &reader, &err);
    PROMISE(err.status == status && !*err.message == !status && !reader == !!status);
    if (status) return 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < dcp_st_tensors(reader); i++)
        bytes += read_tensor(reader, dcp_st_tensor(reader, i));
    write_again(reader, bytes);
    dcp_st_close(reader);
    return 0;
}
