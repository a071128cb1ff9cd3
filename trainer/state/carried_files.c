/* A file is divided among the ranks like any tensor; each rank reads its own part from the disk. */
#include "state/carried_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/model_files.h"
#include "programs/program.h"
#include "ranks/log.h"

static const char section[] = "/files/";

/* Returns the state's file `name`, or NULL. */
static const carried_file *state_files_find(const train_state *s, const char *name) {
    for (size_t i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i].tensor.path + strlen(section), name) == 0) return &s->files[i];
    return NULL;
}

uint64_t state_files_bytes(const train_state *s) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->n_files; i++) bytes += s->files[i].box.count[0];
    return bytes;
}

static int fail_file(const char *key, const char *path, dcp_error *err) {
    return core_fail(err, program_path_is_wrong(errno) ? DCP_ERR_ARG : DCP_ERR_IO,
                     "%s: cannot read %s: %s", key, path, strerror(errno));
}

/* Reads this rank's part of a file. */
static int read_part(const carried_file *file, const char *key, const char *path, dcp_error *err) {
    const uint64_t bytes = file->box.count[0];
    uint64_t done = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_file(key, path, err);
    while (done < bytes) {
        const ssize_t n =
            pread(fd, (char *)file->data + done, bytes - done, (off_t)(file->box.start[0] + done));
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENODATA; /* the file was truncated in the meantime */
        if (n <= 0) break;
        done += (uint64_t)n;
    }
    const int status = done < bytes ? fail_file(key, path, err) : DCP_OK;
    close(fd);
    return status;
}

/* Not collective. Adds the file at `path` to the state. DCP_ERR_ARG: the file cannot be read.
 * DCP_ERR_IO: it may be readable later. Messages begin with `key`. */
static int state_files_keep(train_state *s, const char *key, const char *path, const char *name,
                            dcp_error *err) {
    char full[sizeof section + NAME_MAX];
    struct stat st;
    if (stat(path, &st) != 0) return fail_file(key, path, err);
    snprintf(full, sizeof full, "%s%s", section, name);
    const int status = state_add_file(s, full, (uint64_t)st.st_size, err);
    return status == DCP_OK ? read_part(&s->files[s->n_files - 1], key, path, err) : status;
}

int state_files_keep_init(train_state *s, const char *folder, const char *name, dcp_error *err) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path) return DCP_OK;
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) return DCP_OK;
    return state_files_keep(s, "init", path, name, err);
}

int state_files_gather(const carried_file *file, MPI_Comm comm, char **text, uint64_t *bytes,
                       dcp_error *err) {
    int world;
    MPI_Comm_size(comm, &world);
    *bytes = file->tensor.shape[0];
    *text = NULL;
    if (*bytes >= INT_MAX) /* the same on all ranks */
        return core_fail_tensor(core_fail(err, DCP_ERR_UNSUPPORTED,
                                          "%s has %" PRIu64
                                          " bytes: only files of less than 2 GiB can be read",
                                          file->tensor.path, *bytes),
                                file->tensor.path, err);
    char *own = malloc(*bytes + 1);
    const int status = ranks_agree(comm, own ? DCP_OK : core_fail_memory(err, *bytes), err);
    if (status != DCP_OK) {
        free(own);
        return status;
    }
    *text = own;
    memcpy(*text + file->box.start[0], file->data, file->box.count[0]);
    for (int r = 0; r < world; r++) {
        const dcp_box box = dcp_box_chunk(&file->tensor, r, world);
        MPI_Bcast(*text + box.start[0], (int)box.count[0], MPI_BYTE, r, comm);
    }
    (*text)[*bytes] = '\0';
    return DCP_OK;
}

/* A tokenizer's files are added to the state in the order of their names. */

static const char files_section[] = "/files/";

typedef int (*file_fn)(void *ctx, const char *path, const char *name, uint64_t bytes,
                       dcp_error *err);

static int fail_tokenizer(const char *path, dcp_error *err) {
    return core_fail(err, program_path_is_wrong(errno) ? DCP_ERR_ARG : DCP_ERR_IO,
                     "data.tokenizer: cannot read %s: %s; give the folder of a tokenizer", path,
                     strerror(errno));
}

static int visit_file(const char *path, const char *name, file_fn visit, void *ctx,
                      dcp_error *err) {
    struct stat st;
    if (stat(path, &st) != 0 || access(path, R_OK) != 0) return fail_tokenizer(path, err);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return core_fail(err, DCP_ERR_ARG, "data.tokenizer: %s is %s; get it again", path,
                         S_ISREG(st.st_mode) ? "empty" : "not a file");
    return visit(ctx, path, name, (uint64_t)st.st_size, err);
}

static int is_wanted(const struct dirent *entry) { return model_files_is_tokenizer(entry->d_name); }

static int visit_folder(const char *folder, file_fn visit, void *ctx, dcp_error *err) {
    char path[PATH_MAX];
    struct dirent **entries;
    const int n = scandir(folder, &entries, is_wanted, alphasort);
    if (n < 0) return fail_tokenizer(folder, err);
    int status = DCP_OK;
    if (n == 0)
        status = core_fail(err, DCP_ERR_ARG,
                           "data.tokenizer: %s holds no file of a tokenizer, such as "
                           "tokenizer.json, vocab.json or tokenizer.model; give a folder that does",
                           folder);
    for (int i = 0; i < n; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        errno = ENAMETOOLONG;
        if (status == DCP_OK && (length < 0 || (size_t)length >= sizeof path))
            status = fail_tokenizer(folder, err);
        if (status == DCP_OK) status = visit_file(path, entries[i]->d_name, visit, ctx, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static int visit_all(const char *path, file_fn visit, void *ctx, dcp_error *err) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct stat st;
    if (stat(path, &st) != 0) return fail_tokenizer(path, err);
    if (S_ISDIR(st.st_mode)) return visit_folder(path, visit, ctx, err);
    if (model_files_is_tokenizer(name)) return visit_file(path, name, visit, ctx, err);
    return core_fail(err, DCP_ERR_ARG,
                     "data.tokenizer: %s does not have the name of a tokenizer's file, such as "
                     "tokenizer.json; a folder that holds one is accepted as well",
                     path);
}

static int accept(void *ctx, const char *path, const char *name, uint64_t bytes, dcp_error *err) {
    (void)ctx, (void)path, (void)name, (void)bytes, (void)err;
    return DCP_OK;
}

int state_tokenizer_check(const char *path, dcp_error *err) {
    return visit_all(path, accept, NULL, err);
}

static int keep_file(void *ctx, const char *path, const char *name, uint64_t bytes,
                     dcp_error *err) {
    (void)bytes;
    return state_files_keep(ctx, "data.tokenizer", path, name, err);
}

int state_tokenizer_keep(train_state *s, const char *path, dcp_error *err) {
    for (size_t i = 0; i < s->n_files; i++)
        if (model_files_is_tokenizer(s->files[i].tensor.path + strlen(files_section)))
            return DCP_OK;
    return visit_all(path, keep_file, s, err);
}

/* Images are normalized in the same way as by transformers' image processors. If do_rescale is set,
 * a byte is multiplied by rescale_factor. If do_normalize is set, the channel's image_mean is then
 * subtracted, and the result divided by the channel's image_std. Images are not resized: the data
 * already have the model's size. */

static const char file_name[] = "preprocessor_config.json";

static bool is_off(const json_t *o, const char *key) {
    return json_is_false(json_object_get(o, key));
}

static int fail_value(const char *key, const char *asked, dcp_error *err) {
    return core_fail(err, DCP_ERR_ARG,
                     "%s of the model (of init, or of the checkpoint's files): %s is not %s; "
                     "correct it, or set do_normalize to false",
                     file_name, key, asked);
}

/* Reads a list of one number per channel, or a single number for all channels. */
static int read_channels(const json_t *o, const char *key, bool above_zero, uint64_t channels,
                         float *out, dcp_error *err) {
    const json_t *value = json_object_get(o, key);
    char asked[96];
    bool is_good = json_is_number(value) || json_array_size(value) == channels;
    for (uint64_t c = 0; c < channels && is_good; c++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, c) : value;
        out[c] = (float)json_number_value(one);
        is_good = json_is_number(one) && (!above_zero || out[c] > 0.0f);
    }
    if (is_good) return DCP_OK;
    snprintf(asked, sizeof asked, "a number%s for each of the model's %" PRIu64 " channels",
             above_zero ? " above 0" : "", channels);
    return fail_value(key, asked, err);
}

static int read_scale(const json_t *o, double *out, dcp_error *err) {
    const json_t *factor = json_object_get(o, "rescale_factor");
    *out = is_off(o, "do_rescale") ? 1.0 : factor ? json_number_value(factor) : 1.0 / 255.0;
    return *out > 0.0 ? DCP_OK : fail_value("rescale_factor", "a number above 0", err);
}

static int read_normalization(const char *text, uint64_t bytes, uint64_t channels,
                              sample_normalization *out, dcp_error *err) {
    json_t *o = core_json_read(text, bytes, NULL);
    int status = json_is_object(o) ? DCP_OK : fail_value("it", "a JSON object", err);
    const bool normalizes = status == DCP_OK && !is_off(o, "do_normalize") &&
                            json_object_get(o, "image_mean") && json_object_get(o, "image_std");
    if (normalizes && channels > SAMPLE_MAX_CHANNELS)
        status = core_fail(err, DCP_ERR_UNSUPPORTED,
                           "%s: images of more than %d channels cannot be normalized", file_name,
                           SAMPLE_MAX_CHANNELS);
    if (normalizes && status == DCP_OK) status = read_scale(o, &out->scale, err);
    if (normalizes && status == DCP_OK)
        status = read_channels(o, "image_mean", false, channels, out->mean, err);
    if (normalizes && status == DCP_OK)
        status = read_channels(o, "image_std", true, channels, out->std, err);
    if (normalizes) out->channels = channels;
    json_decref(o);
    return status;
}

int state_preprocessor_read(const train_state *s, MPI_Comm comm, uint64_t channels,
                            sample_normalization *out, dcp_error *err) {
    const carried_file *file = state_files_find(s, file_name);
    char *text;
    uint64_t bytes;
    *out = (sample_normalization){0};
    if (!file) return DCP_OK;
    int status = state_files_gather(file, comm, &text, &bytes, err);
    if (status != DCP_OK) return status;
    status = read_normalization(text, bytes, channels, out, err); /* the same on all ranks */
    free(text);
    return status;
}

enum { BYTES = 256 };

/* Returns the path that the configuration's `model` names, or NULL if `model` is not a path. */
static const char *model_path(const config *c) {
    return json_string_value(json_object_get(c->tree, "model"));
}

static bool holds(const char *folder, const char *name) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

void state_unused_weights_warn(const config *c, int rank) {
    const char *folder = model_path(c);
    if (rank == 0 && folder &&
        (holds(folder, "model.safetensors") || holds(folder, "model.safetensors.index.json")))
        ranks_warn(rank,
                   "model: %s holds weights, which are not used: set init=%s to start from them",
                   folder, folder);
}

static int is_tokenizer(const struct dirent *entry) {
    return model_files_is_tokenizer(entry->d_name);
}

static bool has_tokenizer(const char *folder) {
    struct dirent **entries;
    const int n = folder ? scandir(folder, &entries, is_tokenizer, NULL) : -1;
    for (int i = 0; i < n; i++) free(entries[i]);
    if (n >= 0) free(entries);
    return n > 0;
}

void state_unused_tokenizer_warn(const config *c, uint64_t vocabulary, int rank) {
    const char *given = model_path(c), *from = c->tokenizer; /* a folder, or one file of a
                                                              * tokenizer */
    if (rank != 0 || strcmp(c->data_type, "text") != 0 || vocabulary <= BYTES) return;
    if (!from && has_tokenizer(c->init)) from = c->init;
    if (!from && has_tokenizer(given)) from = given;
    if (from)
        ranks_warn(rank,
                   "data.type: text feeds bytes as token ids, but %s has a tokenizer: make token "
                   "ids with examples/tokenize_text.py and set data.type=tokens",
                   from);
}
