#include "data/record_files.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data/joined_files.h"
#include "programs/fail.h"

static int open_holder(record_files *r, size_t i, record_file_read read, void *ctx,
                       dcp_error *err) {
    record_file *f = &r->list[i];
    dcp_error why;
    f->path = r->files.list[i].path;
    f->first = r->records;
    int status = dcp_st_open(f->path, &f->reader, &why);
    if (status != DCP_OK) return core_fail(err, status, "data.path: %s; %s", why.message, r->anew);
    status = read(ctx, f, err);
    r->records += f->records;
    return status;
}

static bool is_safetensors(const char *path) {
    static const char end[] = ".safetensors";
    const size_t n = strlen(path), m = sizeof end - 1;
    return n >= m && strcmp(path + n - m, end) == 0;
}

static int find_files(record_files *r, const char *path, dcp_error *err) {
    const int status = data_files_find(path, &r->files, err);
    if (status != DCP_OK) return status;
    if (r->files.n > 1) data_files_keep(&r->files, is_safetensors);
    if (r->files.n > 0) return DCP_OK;
    return core_fail(err, DCP_ERR_NOT_FOUND,
                     "data.path: %s holds no .safetensors file with records; %s", path, r->anew);
}

int data_record_files_open(const char *path, const char *anew, record_file_read read, void *ctx,
                           record_files *out, dcp_error *err) {
    *out = (record_files){.files.fd = -1, .anew = anew};
    int status = find_files(out, path, err);
    if (status != DCP_OK) return status;
    out->list = calloc(out->files.n, sizeof *out->list);
    if (!out->list) return core_fail_memory(err, out->files.n * sizeof *out->list);
    for (size_t i = 0; i < out->files.n && status == DCP_OK; i++)
        status = open_holder(out, i, read, ctx, err);
    return status;
}

void data_record_files_close(record_files *r) {
    for (size_t i = 0; r->list && i < r->files.n; i++) {
        if (r->list[i].reader) dcp_st_close(r->list[i].reader);
        for (size_t which = 0; which < RECORD_MAX_STARTS; which++) free(r->list[i].starts[which]);
    }
    free(r->list);
    data_files_close(&r->files);
}

const record_file *data_record_files_holder(const record_files *r, uint64_t record) {
    return &r->list[data_sorted_last(&r->list->first, r->files.n, sizeof *r->list, record)];
}

int data_record_file_starts(record_file *f, size_t which, const char *name, dcp_error *err) {
    const uint64_t bytes = dcp_tensor_bytes(dcp_st_find(f->reader, name));
    f->starts[which] = malloc(bytes);
    if (!f->starts[which]) return core_fail_memory(err, bytes);
    return data_record_file_part(f, name, 0, bytes, f->starts[which], err);
}

int data_record_file_part(const record_file *f, const char *name, uint64_t offset, uint64_t bytes,
                          void *out, dcp_error *err) {
    dcp_error why;
    const int status = dcp_st_read(f->reader, name, offset, bytes, out, &why);
    return status == DCP_OK ? DCP_OK : core_fail(err, status, "data.path: %s", why.message);
}
