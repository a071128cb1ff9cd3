/* A folder as Hugging Face's transformers reads it. Files of the checkpoint come last and replace
 * none of ours. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/json_text.h"
#include "export/export.h"
#include "programs/program.h"

static int create_files(const export_plan *plan, const char *dir) {
    char path[PATH_MAX + 80];
    int status = 0;
    for (size_t i = 0; status == 0 && i < plan->n_files; i++) {
        const export_file *file = &plan->files[i];
        snprintf(path, sizeof path, "%s/%s", dir, file->name);
        status = export_reserve(path, file->head, file->head_bytes, file->bytes);
    }
    return status;
}

/* As transformers writes it. */
static int write_index(const export_plan *plan, const export_part *part, const char *dir) {
    char path[PATH_MAX + 80];
    json_t *map = json_object();
    for (size_t i = part->first; i < part->first + part->n; i++)
        json_object_set_new(map, plan->items[i].tensor.path,
                            json_string(plan->files[plan->items[i].file].name));
    json_t *root =
        json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", (json_int_t)part->elems,
                  "total_size", (json_int_t)part->bytes, "weight_map", map);
    snprintf(path, sizeof path, "%s/%s.safetensors.index.json", dir, part->stem);
    FILE *out = fopen(path, "wx");
    int failed = !out || json_text_write(root, JSON_SORT_KEYS, out);
    if (out) failed |= fclose(out) != 0;
    json_decref(root);
    return failed ? program_fail_errno("cannot write", path) : 0;
}

static int make_parents(char *path, size_t from) {
    for (char *slash = path + from; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        int failed = mkdir(path, 0777) && errno != EEXIST;
        if (failed) return program_fail_errno("cannot make", path);
        *slash = '/';
    }
    return 0;
}

static int write_bytes(void *ctx, uint64_t offset, const void *data, uint64_t bytes) {
    (void)offset;
    return fwrite(data, 1, bytes, ctx) == bytes ? 0
                                                : program_fail_errno("cannot write", "a kept file");
}

static int write_kept_file(dcp_checkpoint *ckpt, const dcp_tensor *tensor, const char *name,
                           const char *dir) {
    char path[PATH_MAX + DCP_MAX_PATH + 2];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int status = make_parents(path, strlen(dir) + 1);
    if (status) return status;
    FILE *f = fopen(path, "wbx");
    if (!f && errno == EEXIST)
        return program_fail(PROGRAM_DIFFERS,
                            "%s: %s has the name of a file that an export makes itself",
                            dcp_checkpoint_path(ckpt), tensor->path);
    if (!f) return program_fail_errno("cannot create", path);
    status = export_stream(ckpt, tensor->path, tensor->dtype, 0, UINT64_MAX, NULL, write_bytes, f);
    if (fclose(f) && status == 0) status = program_fail_errno("cannot write", path);
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

int export_folder(dcp_checkpoint *ckpt, const export_plan *plan, const char *dir) {
    int status = create_files(plan, dir);
    for (size_t i = 0; status == 0 && i < plan->n_parts; i++)
        if (plan->parts[i].files > 1) status = write_index(plan, &plan->parts[i], dir);
    if (status == 0) status = export_config(ckpt, plan, dir);
    return status ? status : write_kept_files(ckpt, dir);
}
