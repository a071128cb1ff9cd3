/* Files of the folder may be hostile: they are opened by the rules of the library's safetensors
 * reader, and their sizes are bounded. */
#include "import/hf_source.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/launch.h"
#include "import/moments.h"
#include "models/weights_check.h"
#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/model_files.h"
#include "programs/program.h"

#define MAX_CONFIG_BYTES (2u << 20) /* what jansson makes of it then stays below 80 MB */
#define WHOLE "model.safetensors"   /* where there is no index */
#define MAX_COMPANION_BYTES ((uint64_t)2 << 30) /* a talker's codec has 0.7 GB */

static int is_companion(const struct dirent *entry) {
    return model_files_is_companion(entry->d_name);
}

static int compare_entries(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* prefix: of its name in the checkpoint. */
static int add_companion(const char *folder, const char *prefix, const char *entry,
                         import_files *files) {
    dcp_error err = {0};
    import_file *grown = realloc(files->list, (files->n + 1) * sizeof *grown);
    if (!grown) return program_no_memory();
    files->list = grown;
    import_file *file = &files->list[files->n];
    if (dcp_st_open_file(folder, entry, &file->fd, &file->bytes, &err)) return program_report(&err);
    files->n++;
    if (asprintf(&file->name, "%s%s", prefix, entry) < 0) file->name = NULL;
    if (!file->name) return program_no_memory();
    files->bytes += file->bytes;
    if (file->bytes <= MAX_COMPANION_BYTES && files->bytes <= MAX_COMPANION_BYTES) return 0;
    return program_refuse("%s/%s: %" PRIu64
                          " bytes; the files that a checkpoint keeps have at most %" PRIu64
                          " together: move what no tokenizer needs out of the folder",
                          folder, entry, file->bytes, MAX_COMPANION_BYTES);
}

static int add_companions(const char *folder, const char *prefix,
                          int (*filter)(const struct dirent *), import_files *files) {
    struct dirent **entries;
    const int n = scandir(folder, &entries, filter, compare_entries);
    int status = 0;
    if (n < 0) return program_fail_errno("cannot list", folder);
    for (int i = 0; i < n; i++) {
        if (status == 0) status = add_companion(folder, prefix, entries[i]->d_name, files);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Hidden ones aside; what lies deeper is no file. */
static int is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.' && entry->d_type != DT_DIR;
}

static int add_folders(const char *folder, import_files *files) {
    int status = 0;
    for (size_t i = 0; model_files_folders[i] && status == 0; i++) {
        char path[PATH_MAX], prefix[64];
        struct stat st = {.st_mode = 0};
        const int length = snprintf(path, sizeof path, "%s/%s", folder, model_files_folders[i]);
        if (length < 0 || (size_t)length >= sizeof path) continue;
        if (stat(path, &st) != 0 && errno != ENOENT && errno != ENOTDIR)
            return program_fail_errno("cannot look at", path);
        if (!S_ISDIR(st.st_mode)) continue;
        snprintf(prefix, sizeof prefix, "%s/", model_files_folders[i]);
        status = add_companions(path, prefix, is_shown, files);
    }
    return status;
}

static int compare_files(const void *a, const void *b) {
    return strcmp(((const import_file *)a)->name, ((const import_file *)b)->name);
}

int import_files_open(const char *folder, import_files *out) {
    *out = (import_files){0};
    int status = add_companions(folder, "", is_companion, out);
    if (status == 0) status = add_folders(folder, out);
    if (status)
        import_files_close(out);
    else if (out->n)
        qsort(out->list, out->n, sizeof *out->list, compare_files);
    return status;
}

void import_files_close(import_files *files) {
    for (size_t i = 0; i < files->n; i++) {
        close(files->list[i].fd);
        free(files->list[i].name);
    }
    free(files->list);
    *files = (import_files){0};
}

static int is_safetensors(const struct dirent *entry) {
    const char *end = strstr(entry->d_name, ".safetensors");
    return entry->d_name[0] != '.' && end && !end[strlen(".safetensors")];
}

static int is_read(const dcp_st_reader *reader, const char *name) {
    for (size_t i = 0; i < dcp_st_files(reader); i++) {
        const char *path = dcp_st_file(reader, i), *slash = strrchr(path, '/');
        if (strcmp(slash ? slash + 1 : path, name) == 0) return 1;
    }
    return 0;
}

/* As dcp-export --with-optimizer writes it. */
static int is_optimizer(const char *name) { return strncmp(name, "optimizer", 9) == 0; }

void import_note_unnamed(const char *folder, const dcp_st_reader *reader, int with_optimizer) {
    struct dirent **entries;
    int n = scandir(folder, &entries, is_safetensors, compare_entries), moments = 0;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (is_optimizer(name) && !is_read(reader, name) && !with_optimizer && moments++ == 0)
            program_note("%s/%s: not imported; --with-optimizer takes the moments that dcp-export "
                         "--with-optimizer wrote",
                         folder, name);
        else if (!is_optimizer(name) && !is_read(reader, name))
            program_note("%s/%s: not a file of the model%s: not imported", folder, name,
                         is_read(reader, WHOLE) ? ", which is " WHOLE " alone" : ", by its index");
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

static int is_pickle(const struct dirent *entry) {
    return fnmatch("pytorch_model*.bin", entry->d_name, 0) == 0 ||
           fnmatch("*.pt", entry->d_name, FNM_PERIOD) == 0 ||
           fnmatch("*.pth", entry->d_name, FNM_PERIOD) == 0;
}

void import_note_pickles(const char *folder) {
    struct dirent **entries;
    const int n = scandir(folder, &entries, is_pickle, compare_entries);
    if (n > 0)
        program_note("%s/%s: pickled weights, which are not read here; transformers writes them "
                     "as safetensors: python3 -c \"from transformers import AutoModelForCausalLM "
                     "as M; M.from_pretrained('%s').save_pretrained('%s-safetensors')\"",
                     folder, entries[0]->d_name, folder, folder);
    for (int i = 0; i < n; i++) free(entries[i]);
    if (n >= 0) free(entries);
}

/* Bytes [offset, offset + bytes) of an open file. */
static int read_file(int fd, const char *name, uint64_t offset, uint64_t bytes, char *out,
                     dcp_error *err) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return core_fail_errno(err, "cannot read", name);
        if (got == 0) return core_fail(err, DCP_ERR_CORRUPT, "%s: became shorter", name);
        done += (uint64_t)got;
    }
    return DCP_OK;
}

static int parse_config(const char *folder, const char *text, uint64_t bytes, json_t **out) {
    json_error_t where;
    json_t *config = core_json_read(text, bytes, &where);
    if (!config)
        return program_fail(PROGRAM_DIFFERS, "%s/config.json: not JSON: %s (line %d, column %d)",
                            folder, where.text, where.line, where.column);
    if (!json_is_object(config)) {
        json_decref(config);
        return program_fail(PROGRAM_DIFFERS, "%s/config.json: not a JSON object", folder);
    }
    *out = config;
    return 0;
}

/* Leaves what the trainer stores of a configuration. */
static void strip(json_t *config) {
    const char *key;
    json_t *value;
    void *next;
    json_object_del(config, "transformers_version");
    json_object_foreach_safe(config, next, key, value) {
        if (key[0] == '_') json_object_del(config, key);
    }
}

int import_config_read(const char *folder, json_t **out) {
    dcp_error err = {0};
    int fd;
    uint64_t bytes;
    int status = dcp_st_open_file(folder, "config.json", &fd, &bytes, &err);
    if (status == DCP_ERR_NOT_FOUND)
        return program_refuse("%s: holds no config.json, so it is no Hugging Face folder", folder);
    if (status) return program_report(&err);
    char *text = bytes <= MAX_CONFIG_BYTES ? malloc(bytes + 1) : NULL;
    if (bytes > MAX_CONFIG_BYTES)
        status =
            program_fail(PROGRAM_DIFFERS, "%s/config.json: has %" PRIu64 " bytes, more than %u",
                         folder, bytes, MAX_CONFIG_BYTES);
    else if (!text)
        status = program_no_memory();
    if (status == 0 && read_file(fd, "config.json", 0, bytes, text, &err))
        status = program_report(&err);
    if (status == 0) status = parse_config(folder, text, bytes, out);
    if (status == 0) strip(*out);
    free(text);
    close(fd);
    return status;
}

/* Boxes of whole rows are ranges of a file's bytes, so what a save asks for is read straight
 * from the file into the save's buffer. */

typedef struct source_range {
    dcp_st_reader *reader; /* NULL: a companion file */
    const char *name;
    int fd;         /* of a companion file */
    uint64_t first; /* byte of the tensor or file that the box begins with */
} source_range;

struct import_source {
    dcp_state *state;
    source_range *ranges;
    size_t n;
};

static int read_range(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const source_range *r = ctx;
    if (!r->reader) return read_file(r->fd, r->name, r->first + offset, bytes, out, err);
    return dcp_st_read(r->reader, r->name, r->first + offset, bytes, out, err);
}

/* `r` is the whole tensor's or file's range; it becomes this rank's part. */
static int add_range(import_source *s, source_range r, const char *section, dcp_tensor tensor,
                     int rank, int size) {
    dcp_error err = {0};
    char path[DCP_MAX_PATH + 64];
    snprintf(path, sizeof path, "/%s/%s", section, r.name);
    if (strcmp(section, IMPORT_MOMENTS) == 0) *strchr(path, '.') = '/';
    tensor.path = path;
    dcp_box box = dcp_box_chunk(&tensor, rank, size), row = dcp_box_whole(&tensor);
    if (tensor.ndim) {
        row.count[0] = 1;
        r.first = box.start[0] * dcp_box_elems(&row, tensor.ndim) * dcp_dtype_bytes(tensor.dtype);
    }
    s->ranges[s->n] = r;
    if (dcp_state_add_source(s->state, &tensor, &box, read_range, &s->ranges[s->n], -1, &err))
        return program_report(&err);
    s->n++;
    return 0;
}

static int add_read_tensors(import_source *s, dcp_st_reader *reader, const char *section, int rank,
                            int size) {
    int status = 0;
    for (size_t i = 0; status == 0 && i < dcp_st_tensors(reader); i++) {
        const dcp_tensor *tensor = dcp_st_tensor(reader, i);
        status =
            add_range(s, (source_range){reader, tensor->path, -1, 0}, section, *tensor, rank, size);
    }
    return status;
}

static int add_all(import_source *s, dcp_st_reader *reader, dcp_st_reader *moments,
                   const import_files *files, int rank, int size) {
    dcp_error err = {0};
    int status = dcp_state_create(&s->state, &err) ? program_report(&err) : 0;
    if (status == 0) status = add_read_tensors(s, reader, "model", rank, size);
    if (status == 0 && moments) status = add_read_tensors(s, moments, IMPORT_MOMENTS, rank, size);
    for (size_t i = 0; status == 0 && i < files->n; i++) {
        const import_file *f = &files->list[i];
        dcp_tensor tensor = {.dtype = DCP_U8, .ndim = 1, .shape = {f->bytes}};
        status = add_range(s, (source_range){NULL, f->name, f->fd, 0}, "files", tensor, rank, size);
    }
    return status;
}

int import_source_make(dcp_st_reader *reader, dcp_st_reader *moments, const import_files *files,
                       int rank, int size, import_source **out) {
    import_source *s = calloc(1, sizeof *s);
    const size_t n = dcp_st_tensors(reader) + (moments ? dcp_st_tensors(moments) : 0) + files->n;
    if (s) s->ranges = calloc(n + 1, sizeof *s->ranges);
    if (!s || !s->ranges) {
        free(s);
        return program_no_memory();
    }
    int status = add_all(s, reader, moments, files, rank, size);
    if (status)
        import_source_free(s);
    else
        *out = s;
    return status;
}

const dcp_state *import_source_state(const import_source *source) { return source->state; }

void import_source_free(import_source *source) {
    if (!source) return;
    dcp_state_destroy(source->state);
    free(source->ranges);
    free(source);
}

/* The tensors against config.json: a folder that does not fit is found when it is imported, not
 * when it is trained. */

enum { MISSING, SURPLUS, OTHER_SHAPE, KINDS };
enum { MOST_LISTED = 12, LINE_BYTES = 640 }; /* of a kind; a name has at most 256 characters here */

/* Differences that are the same but for the layer's number. */
typedef struct check_line {
    char first[LINE_BYTES], like[LINE_BYTES]; /* like: numbers between dots are stars */
    size_t n;
} check_line;

typedef struct check_report {
    const char *folder;
    check_line lines[KINDS * MOST_LISTED]; /* in the order in which they were found */
    size_t n, of_kind[KINDS], differences, listed;
} check_report;

static int is_number(const char *from, const char *text, size_t length) {
    const int begins = from == text || from[-1] == '.';
    return length > 0 && begins && (from[length] == '.' || from[length] == ' ');
}

static void make_like(const char *text, char *out) {
    for (const char *at = text; *at;) {
        const size_t digits = strspn(at, "0123456789");
        if (is_number(at, text, digits)) {
            *out++ = '*';
            at += digits;
        } else {
            *out++ = *at++;
        }
    }
    *out = '\0';
}

static void count_line(check_report *r, int kind, const char *text) {
    char like[LINE_BYTES];
    size_t i = 0;
    make_like(text, like);
    while (i < r->n && strcmp(r->lines[i].like, like) != 0) i++;
    r->differences++;
    if (i == r->n) {
        if (r->of_kind[kind] == MOST_LISTED) return;
        r->of_kind[kind]++;
        strcpy(r->lines[r->n].first, text);
        strcpy(r->lines[r->n++].like, like);
    }
    r->lines[i].n++;
    r->listed++;
}

static void note_difference(void *to, weights_difference difference) {
    const model_param *param = difference.param;
    const dcp_tensor *tensor = difference.tensor;
    char asked[160], there[160], text[LINE_BYTES];
    if (param) model_weights_shape_text(param->ndim, param->shape, asked, sizeof asked);
    if (tensor) model_weights_shape_text(tensor->ndim, tensor->shape, there, sizeof there);
    if (!tensor)
        snprintf(text, sizeof text, "%.256s %s is missing, config.json asks for it", param->name,
                 asked);
    else if (!param)
        snprintf(text, sizeof text, "%.256s %s is surplus, config.json asks for no such tensor",
                 tensor->path, there);
    else
        snprintf(text, sizeof text, "%.256s is %s, config.json asks for %s", tensor->path, there,
                 asked);
    count_line(to, !tensor ? MISSING : !param ? SURPLUS : OTHER_SHAPE, text);
}

/* Lists the differences, and judges. An exit status. */
static int judge_report(const check_report *r, int allow) {
    for (size_t i = 0; i < r->n; i++) {
        const check_line *line = &r->lines[i];
        if (line->n == 1)
            program_note("%s: %s", r->folder, line->first);
        else
            program_note("%s: %s (%zu tensors)", r->folder, line->like, line->n);
    }
    if (r->differences > r->listed)
        program_note("%s: and %zu more differences", r->folder, r->differences - r->listed);
    if (r->differences == 0 || allow) return 0;
    return program_fail(
        PROGRAM_DIFFERS,
        "%s: these are not the tensors of its config.json, and dcp-train would refuse them: mend "
        "one or the other; --allow-mismatch imports them as they are",
        r->folder);
}

static const model_param **list_params(const model *m, size_t *n) {
    *n = 0;
    for (size_t u = 0; u < model_units(m); u++) *n += model_unit_params(m, u);
    const model_param **params = calloc(*n + 1, sizeof *params);
    size_t at = 0;
    for (size_t u = 0; params && u < model_units(m); u++)
        for (size_t i = 0; i < model_unit_params(m, u); i++)
            params[at++] = model_unit_param(m, u, i);
    return params;
}

static const dcp_tensor **list_tensors(const dcp_st_reader *reader) {
    const size_t n = dcp_st_tensors(reader);
    const dcp_tensor **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) list[i] = dcp_st_tensor(reader, i);
    return list;
}

static void note_fresh(const model_param *const *params, size_t n, const found_tensors *found) {
    for (size_t i = 0; i < n; i++)
        if (params[i]->fresh && !model_weights_find_param(found, params[i]))
            program_note("%s: has no %s: dcp-train will initialize it", found->where,
                         params[i]->name);
}

static int compare_config(const char *folder, const model *m, const dcp_st_reader *reader,
                          int allow) {
    dcp_error err = {0};
    size_t n;
    check_report r = {.folder = folder};
    const model_param **params = list_params(m, &n);
    const dcp_tensor **list = list_tensors(reader);
    const found_tensors found = {.where = folder,
                                 .prefix = "",
                                 .list = list,
                                 .n = dcp_st_tensors(reader),
                                 .weights_only = 1};
    int status = params && list ? 0 : program_no_memory();
    if (status == 0 && model_weights_compare(params, n, &found, note_difference, &r, &err))
        status = program_report(&err);
    if (status == 0) note_fresh(params, n, &found);
    free(list);
    free(params);
    return status ? status : judge_report(&r, allow);
}

/* The message without "model config: ", with which it may begin. */
static const char *message(const dcp_error *err) {
    static const char whose[] = "model config: ";
    return err->message + (strncmp(err->message, whose, strlen(whose)) ? 0 : strlen(whose));
}

static int ends_in(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The same without dropout, which dcp-train refuses and no tensor depends on. NULL: out of memory.
 */
static json_t *without_dropout(const json_t *config) {
    json_t *copy = json_copy((json_t *)config);
    const char *key;
    json_t *value;
    json_object_foreach(copy, key, value) if (ends_in(key, "drop") || ends_in(key, "dropout") ||
                                              ends_in(key, "dropout_prob"))
        json_object_set_new(copy, key, json_real(0.0));
    return copy;
}

int import_source_check(const char *folder, const json_t *config, const dcp_st_reader *reader,
                        int allow) {
    dcp_error err = {0}, still = {0};
    model *m = NULL;
    json_t *bare = without_dropout(config);
    if (model_describe(config, &m, &err)) {
        model_describe(bare, &m, &still);
        program_note("%s/config.json: %s: dcp-train would refuse it%s", folder, message(&err),
                     m ? "" : "; the tensors are not compared with it");
    }
    json_decref(bare);
    const int status = m ? compare_config(folder, m, reader, allow) : 0;
    model_forget(m);
    return status;
}
