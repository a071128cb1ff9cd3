/* A folder as Hugging Face's transformers reads it.
 *
 * Each safetensors file is written whole by one rank; rank 0 adds the small files. A rank that
 * fails goes on to the agreement at the end, so nobody waits for it in vain. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "dcp/safetensors.h"
#include "export.h"

typedef struct tensor_sink {
    dcp_st_writer *writer;
    const export_meter *meter;
} tensor_sink;

static int write_piece(void *ctx, const dcp_box *piece, const void *data, uint64_t bytes) {
    tensor_sink *sink = ctx;
    dcp_error err = {0};
    (void)piece;
    if (dcp_st_write(sink->writer, data, bytes, &err)) return cli_report(&err);
    sink->meter->update(sink->meter->ctx, bytes);
    return 0;
}

static int fill_file(dcp_checkpoint *ckpt, const export_item *items, size_t n,
                     const export_meter *meter, dcp_st_writer *writer) {
    tensor_sink sink = {writer, meter};
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++)
        status = export_stream(ckpt, items[i].source, &items[i].tensor, write_piece, &sink);
    return status;
}

static int write_file(dcp_checkpoint *ckpt, const export_item *items, size_t n, const char *path,
                      const export_meter *meter) {
    dcp_error err = {0};
    dcp_st_writer *writer;
    dcp_tensor *tensors = calloc(n + 1, sizeof *tensors);
    if (!tensors) return cli_fail(CLI_FAILED, "out of memory");
    for (size_t i = 0; i < n; i++) tensors[i] = items[i].tensor;
    int status = dcp_st_create(path, tensors, n, &writer, &err) ? cli_report(&err) : 0;
    free(tensors);
    if (status) return status;
    status = fill_file(ckpt, items, n, meter, writer);
    if (status)
        dcp_st_cancel(writer);
    else if (dcp_st_finish(writer, &err))
        status = cli_report(&err);
    return status;
}

static int write_files(const launch *job, dcp_checkpoint *ckpt, const export_plan *plan,
                       const char *dir, const export_meter *meter) {
    char path[PATH_MAX + 80], name[64];
    int status = 0;
    for (size_t i = 0, n; status == 0 && i < plan->n; i += n) {
        size_t file = plan->items[i].file;
        for (n = 1; i + n < plan->n && plan->items[i + n].file == file;) n++;
        if (file % (size_t)job->size != (size_t)job->rank) continue;
        snprintf(path, sizeof path, "%s/%s", dir, export_file_name(plan, file, name));
        status = write_file(ckpt, &plan->items[i], n, path, meter);
    }
    return status;
}

static int write_index(const export_plan *plan, const char *dir) {
    char path[PATH_MAX + 80], name[64];
    json_t *map = json_object();
    for (size_t i = 0; i < plan->n; i++)
        json_object_set_new(map, plan->items[i].tensor.path,
                            json_string(export_file_name(plan, plan->items[i].file, name)));
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)plan->bytes,
                             "weight_map", map);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    int status = 0;
    if (json_dump_file(root, path, JSON_INDENT(2))) status = cli_fail_errno("cannot write", path);
    json_decref(root);
    return status;
}

static int make_parents(char *path, size_t from) {
    for (char *slash = path + from; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        int failed = mkdir(path, 0777) && errno != EEXIST;
        if (failed) return cli_fail_errno("cannot make", path);
        *slash = '/';
    }
    return 0;
}

static int write_bytes(void *ctx, const dcp_box *piece, const void *data, uint64_t bytes) {
    (void)piece;
    return fwrite(data, 1, bytes, ctx) == bytes ? 0 : cli_fail_errno("cannot write", "a kept file");
}

static int write_kept_file(dcp_checkpoint *ckpt, const dcp_tensor *tensor, const char *name,
                           const char *dir) {
    char path[PATH_MAX + DCP_MAX_PATH + 2];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int status = make_parents(path, strlen(dir) + 1);
    if (status) return status;
    FILE *f = fopen(path, "wb");
    if (!f) return cli_fail_errno("cannot create", path);
    status = export_stream(ckpt, tensor->path, tensor, write_bytes, f);
    if (fclose(f) && status == 0) status = cli_fail_errno("cannot write", path);
    return status;
}

static int write_kept_files(dcp_checkpoint *ckpt, const char *dir) {
    static const char section[] = "/files/";
    int status = 0;
    for (size_t i = 0; status == 0 && i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *tensor = dcp_checkpoint_tensor(ckpt, i);
        if (strncmp(tensor->path, section, strlen(section))) continue;
        status = write_kept_file(ckpt, tensor, tensor->path + strlen(section), dir);
    }
    return status;
}

int export_folder(const launch *job, dcp_checkpoint *ckpt, const export_plan *plan, const char *dir,
                  const export_meter *meter) {
    int status = 0;
    if (job->rank == 0) {
        status = write_kept_files(ckpt, dir);
        if (status == 0) status = export_config(ckpt, plan, dir);
        if (status == 0 && plan->files > 1) status = write_index(plan, dir);
    }
    if (status == 0) status = write_files(job, ckpt, plan, dir, meter);
    return launch_worst(job, status);
}
