/* The folder's files may be malicious. They are opened with the same precautions as in the
 * library's safetensors reader, and their sizes are limited. */
#include "import/hf_source.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/launch.h"
#include "import/model_tensors.h"
#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/model_files.h"
#include "programs/program.h"

#define MAX_CONFIG_BYTES (2u << 20)             /* so jansson's tree stays below 80 MB */
#define WHOLE "model.safetensors"               /* used if there is no index */
#define MAX_COMPANION_BYTES ((uint64_t)2 << 30) /* a talker's codec is 0.7 GB */

static int is_companion(const struct dirent *entry) {
    return model_files_is_companion(entry->d_name);
}

static int compare_entries(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Adds a companion file. prefix: the beginning of the file's name in the checkpoint. */
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
    return program_refuse(
        "%s/%s: %" PRIu64 " bytes; the files that a checkpoint stores may have at most %" PRIu64
        " together: move files that the tokenizer does not need out of the folder",
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

/* Returns true if the entry is neither hidden nor a folder. */
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

static bool is_read(const dcp_st_reader *reader, const char *name) {
    for (size_t i = 0; i < dcp_st_files(reader); i++) {
        const char *path = dcp_st_file(reader, i), *slash = strrchr(path, '/');
        if (strcmp(slash ? slash + 1 : path, name) == 0) return true;
    }
    return false;
}

/* Returns true for names that dcp-export --with-optimizer gives to files. */
static bool is_optimizer(const char *name) { return strncmp(name, "optimizer", 9) == 0; }

void import_note_unnamed(const char *folder, const dcp_st_reader *reader, bool with_optimizer) {
    struct dirent **entries;
    int n = scandir(folder, &entries, is_safetensors, compare_entries), moments = 0;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (is_optimizer(name) && !is_read(reader, name) && !with_optimizer && moments++ == 0)
            program_note(
                "%s/%s: not imported; --with-optimizer imports the moments that dcp-export "
                "--with-optimizer wrote",
                folder, name);
        else if (!is_optimizer(name) && !is_read(reader, name))
            program_note("%s/%s: not a file of the model%s: not imported", folder, name,
                         is_read(reader, WHOLE) ? ", which is only " WHOLE
                                                : " according to its index");
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

/* Returns true if the entry is code that the model requires in addition to transformers. */
static int is_code(const struct dirent *entry) {
    return fnmatch("*.py", entry->d_name, FNM_PERIOD) == 0 && !is_companion(entry);
}

void import_note_code(const char *folder) {
    struct dirent **entries;
    const int n = scandir(folder, &entries, is_code, compare_entries);
    if (n > 0)
        program_note("%s/%s%s: the model's own code is not stored: copy it beside the export, if "
                     "loading the export requires the code",
                     folder, entries[0]->d_name, n > 1 ? " and others" : "");
    for (int i = 0; i < n; i++) free(entries[i]);
    if (n >= 0) free(entries);
}

/* Returns true if the entry is neither stored nor reported in another way. */
static int is_left(const struct dirent *entry) {
    const char *name = entry->d_name;
    for (size_t i = 0; model_files_folders[i]; i++)
        if (strcmp(name, model_files_folders[i]) == 0) return 0;
    return name[0] != '.' && strcmp(name, "config.json") != 0 && !is_companion(entry) &&
           fnmatch("*.safetensors", name, 0) != 0 && fnmatch("*.safetensors.*", name, 0) != 0 &&
           fnmatch("step-*", name, 0) != 0 && !is_code(entry);
}

void import_note_left(const char *folder) {
    enum { MOST_TOLD = 8 };
    struct dirent **entries;
    char *names = NULL;
    size_t bytes = 0;
    const int n = scandir(folder, &entries, is_left, compare_entries);
    FILE *list = n > 0 ? open_memstream(&names, &bytes) : NULL;
    for (int i = 0; i < n; i++) {
        if (list && i < MOST_TOLD) fprintf(list, "%s%s", i ? ", " : "", entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    if (!list) return;
    if (n > MOST_TOLD) fprintf(list, " and %d more", n - MOST_TOLD);
    if (fclose(list) == 0) program_note("%s: not stored in the checkpoint: %s", folder, names);
    free(names);
}

static int is_pickle(const struct dirent *entry) {
    return fnmatch("pytorch_model*.bin", entry->d_name, 0) == 0 ||
           fnmatch("*.pt", entry->d_name, FNM_PERIOD) == 0 ||
           fnmatch("*.pth", entry->d_name, FNM_PERIOD) == 0;
}

/* Returns the name of the first entry that the filter accepts; NULL if there is none. The caller
 * frees it. *n: the number of such entries. */
static char *first_entry(const char *folder, int (*filter)(const struct dirent *), int *n) {
    struct dirent **entries;
    *n = scandir(folder, &entries, filter, compare_entries);
    char *name = *n > 0 ? strdup(entries[0]->d_name) : NULL;
    for (int i = 0; i < *n; i++) free(entries[i]);
    if (*n >= 0) free(entries);
    return name;
}

/* Reports safetensors files that have no index, or whose name is not the expected one. */
static void note_safetensors(const char *folder) {
    int n;
    char *name = first_entry(folder, is_safetensors, &n);
    if (name)
        program_note("%s/%s%s not read: a model must be one file model.safetensors, or several "
                     "files that model.safetensors.index.json names; fetch the index, or rename a "
                     "single file to model.safetensors",
                     folder, name, n > 1 ? " and others are" : " is");
    free(name);
}

void import_note_others(const char *folder) {
    char index[PATH_MAX];
    int n;
    const int length = snprintf(index, sizeof index, "%s/" WHOLE ".index.json", folder);
    if (length > 0 && (size_t)length < sizeof index && access(index, F_OK) != 0)
        note_safetensors(folder);
    char *name = first_entry(folder, is_pickle, &n);
    if (name)
        program_note(
            "%s/%s: pickled weights, which dcp-import does not read; transformers writes them "
            "as safetensors: python3 -c \"from transformers import AutoModelForCausalLM "
            "as M; M.from_pretrained('%s').save_pretrained('%s-safetensors')\"",
            folder, name, folder, folder);
    free(name);
}

/* Reads bytes [offset, offset + bytes) of an open file. */
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
    const size_t mark = program_json_mark(text, bytes);
    json_t *config = core_json_read(text + mark, bytes - mark, &where);
    const char *word = config ? NULL : program_json_infinite(text + mark, bytes - mark, &where);
    if (word)
        return program_fail(
            PROGRAM_DIFFERS,
            "%s/config.json: %s, which Python writes, is not a number in JSON (line "
            "%d, column %d): give a finite number, or leave the key out",
            folder, word, where.line, where.column);
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

/* Removes those keys of a configuration that the trainer does not store. */
static void strip(json_t *config) {
    const char *key;
    json_t *value;
    void *next;
    json_object_del(config, "transformers_version");
    json_object_foreach_safe(config, next, key, value) {
        if (key[0] == '_') json_object_del(config, key);
    }
}

static bool has_adapters(const char *folder) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

int import_config_read(const char *folder, json_t **out) {
    dcp_error err = {0};
    int fd;
    uint64_t bytes;
    int status = dcp_st_open_file(folder, "config.json", &fd, &bytes, &err);
    if (status == DCP_ERR_NOT_FOUND && has_adapters(folder))
        return program_refuse("%s: holds only adapters of PEFT: merge them into their model "
                              "(merge_and_unload()), save the merged model, and import it",
                              folder);
    if (status == DCP_ERR_NOT_FOUND)
        return program_refuse("%s: holds no config.json, so it is no Hugging Face folder", folder);
    if (status) return program_report(&err);
    char *text = bytes <= MAX_CONFIG_BYTES ? malloc(bytes + 1) : NULL;
    if (bytes > MAX_CONFIG_BYTES)
        status = program_fail(PROGRAM_DIFFERS,
                              "%s/config.json: has %" PRIu64 " bytes, but may have at most %u",
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

/* A box of whole rows is a range of a file's bytes. So the requested bytes are read directly from
 * the file into the save's buffer. */

typedef struct source_range {
    dcp_st_reader *reader; /* NULL: the range is in a companion file */
    const char *name;
    int fd;         /* the descriptor of a companion file */
    uint64_t first; /* the offset in the tensor or file at which the box begins */
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

/* Adds this rank's part of a tensor or file to the state. r: describes the whole tensor or file. */
static int add_range(import_source *s, source_range r, const char *section, const char *name,
                     dcp_tensor tensor, int rank, int size) {
    dcp_error err = {0};
    char path[DCP_MAX_PATH + 64];
    snprintf(path, sizeof path, "/%s/%s", section, name);
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

static int add_named(import_source *s, dcp_st_reader *reader, const import_tensors *tensors,
                     const char *section, int rank, int size) {
    int status = 0;
    for (size_t i = 0; status == 0 && i < tensors->n; i++) {
        const import_tensor *t = &tensors->list[i];
        const source_range range = {reader, t->stored, -1, 0};
        status = add_range(s, range, section, t->tensor.path, t->tensor, rank, size);
    }
    return status;
}

static int add_all(import_source *s, const import_model *model, const import_files *files, int rank,
                   int size) {
    dcp_error err = {0};
    int status = dcp_state_create(&s->state, &err) ? program_report(&err) : 0;
    if (status == 0) status = add_named(s, model->reader, &model->tensors, "model", rank, size);
    if (status == 0)
        status = add_named(s, model->moments, &model->moment_tensors, IMPORT_MOMENTS, rank, size);
    for (size_t i = 0; status == 0 && i < files->n; i++) {
        const import_file *f = &files->list[i];
        dcp_tensor tensor = {.dtype = DCP_U8, .ndim = 1, .shape = {f->bytes}};
        const source_range range = {NULL, f->name, f->fd, 0};
        status = add_range(s, range, "files", f->name, tensor, rank, size);
    }
    return status;
}

int import_source_make(const import_model *model, const import_files *files, int rank, int size,
                       import_source **out) {
    import_source *s = calloc(1, sizeof *s);
    const size_t n = model->tensors.n + model->moment_tensors.n + files->n;
    if (s) s->ranges = calloc(n + 1, sizeof *s->ranges);
    if (!s || !s->ranges) {
        free(s);
        return program_no_memory();
    }
    int status = add_all(s, model, files, rank, size);
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
