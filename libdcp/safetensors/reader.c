/* Reading safetensors: one file, or a folder of files under model.safetensors.index.json.
 *
 * A reader holds every file open; its entries ascend by name over all files, and each lies within
 * its file as that was when it was opened. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fail.h"
#include "dcp/safetensors.h"
#include "safetensors/header.h"

typedef struct st_file {
    char *path;
    int fd;
    uint64_t data_start;
} st_file;

struct dcp_st_reader {
    st_file *files;
    size_t n_files;
    st_entry *entries;
    size_t n;
};

static int read_at(int fd, const char *path, uint64_t offset, void *out, uint64_t bytes,
                   dcp_error *err) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return core_fail_errno(err, "cannot read", path);
        if (got == 0)
            return core_fail(err, DCP_ERR_CORRUPT, "%s: ends at byte %llu: truncated?", path,
                             (unsigned long long)(offset + done));
        done += (uint64_t)got;
    }
    return DCP_OK;
}

/* O_NONBLOCK: opening a named pipe must not wait for a writer. */
static int open_regular(const char *path, int *fd_out, uint64_t *size_out, dcp_error *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return core_fail_errno(err, "cannot open", path);
    int status = DCP_OK;
    if (fstat(fd, &st))
        status = core_fail_errno(err, "cannot stat", path);
    else if (!S_ISREG(st.st_mode))
        status = core_fail(err, DCP_ERR_IO, "%s: not a regular file", path);
    if (status != DCP_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    *size_out = (uint64_t)st.st_size;
    return DCP_OK;
}

static int read_header(st_file *file, uint64_t size, st_entry **out, size_t *n_out,
                       dcp_error *err) {
    uint64_t length;
    if (size < ST_PREFIX_BYTES)
        return core_fail(err, DCP_ERR_CORRUPT, "%s: %llu bytes are too few for a safetensors file",
                         file->path, (unsigned long long)size);
    int status = read_at(file->fd, file->path, 0, &length, sizeof length, err);
    if (status != DCP_OK) return status;
    length = le64toh(length);
    if (length > ST_MAX_HEADER)
        return core_fail(err, DCP_ERR_CORRUPT,
                         "%s: the header claims %llu bytes, more than %u: not a safetensors file?",
                         file->path, (unsigned long long)length, ST_MAX_HEADER);
    if (length > size - ST_PREFIX_BYTES)
        return core_fail(err, DCP_ERR_CORRUPT,
                         "%s: the header claims %llu bytes, the file has only %llu: truncated?",
                         file->path, (unsigned long long)length, (unsigned long long)size);
    char *json = malloc(length + 1);
    if (!json) return core_fail_memory(err, length + 1);
    status = read_at(file->fd, file->path, ST_PREFIX_BYTES, json, length, err);
    file->data_start = ST_PREFIX_BYTES + length;
    if (status == DCP_OK)
        status =
            st_header_parse(file->path, json, length, size - file->data_start, out, n_out, err);
    free(json);
    return status;
}

static int append_entries(dcp_st_reader *reader, st_entry *more, size_t n, dcp_error *err) {
    st_entry *grown = realloc(reader->entries, (reader->n + n + 1) * sizeof *grown);
    if (!grown) return core_fail_memory(err, (reader->n + n + 1) * sizeof *grown);
    for (size_t i = 0; i < n; i++) {
        more[i].file = reader->n_files - 1;
        grown[reader->n + i] = more[i];
    }
    reader->entries = grown;
    reader->n += n;
    return DCP_OK;
}

/* reader->files has room. */
static int add_file(dcp_st_reader *reader, const char *path, dcp_error *err) {
    st_file *file = &reader->files[reader->n_files];
    st_entry *entries = NULL;
    size_t n = 0;
    uint64_t size;
    int status = open_regular(path, &file->fd, &size, err);
    if (status != DCP_OK) return status;
    reader->n_files++;
    file->path = strdup(path);
    if (!file->path) return core_fail_memory(err, strlen(path) + 1);
    status = read_header(file, size, &entries, &n, err);
    if (status != DCP_OK) return status;
    status = append_entries(reader, entries, n, err);
    if (status == DCP_OK)
        free(entries);
    else
        st_entries_free(entries, n);
    return status;
}

static int alloc_files(dcp_st_reader *reader, size_t n, dcp_error *err) {
    reader->files = calloc(n, sizeof *reader->files);
    return reader->files ? DCP_OK : core_fail_memory(err, n * sizeof *reader->files);
}

static int load_index(const char *path, json_t **out, dcp_error *err) {
    int fd = -1;
    uint64_t size = 0;
    int status = open_regular(path, &fd, &size, err);
    if (status != DCP_OK) return status;
    char *text = NULL;
    if (size > ST_MAX_HEADER) {
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: has %llu bytes, more than %u", path,
                           (unsigned long long)size, ST_MAX_HEADER);
        goto close_fd;
    }
    text = malloc(size + 1);
    status = text ? read_at(fd, path, 0, text, size, err) : core_fail_memory(err, size);
    if (status != DCP_OK) goto close_fd;
    json_error_t where;
    *out = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (!*out)
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: not JSON: %s (byte %d)", path, where.text,
                           where.position);
close_fd:
    free(text);
    close(fd);
    return status;
}

static int compare_strings(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names of the weight map, ascending; they stay the map's. */
static int list_files(const char *path, json_t *map, const char ***out, size_t *n_out,
                      dcp_error *err) {
    size_t n = 0, distinct = 0;
    const char **names = calloc(json_object_size(map) + 1, sizeof *names);
    if (!names) return core_fail_memory(err, json_object_size(map) * sizeof *names);
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value) {
        const char *file = json_string_value(value);
        if (!file || !*file || strchr(file, '/') || !strcmp(file, ".") || !strcmp(file, "..")) {
            free(names);
            return core_fail(err, DCP_ERR_CORRUPT,
                             "%s: tensor '%s' is not in a file of this folder: '%s'", path, tensor,
                             file ? file : "");
        }
        names[n++] = file;
    }
    qsort(names, n, sizeof *names, compare_strings);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[distinct - 1])) names[distinct++] = names[i];
    *out = names;
    *n_out = distinct;
    return DCP_OK;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Each entry must be where the map says, and each name of the map must have an entry. */
static int check_index(const dcp_st_reader *reader, const char *path, json_t *map, dcp_error *err) {
    for (size_t i = 0; i < reader->n; i++) {
        const char *name = reader->entries[i].tensor.path;
        const char *file = base_name(reader->files[reader->entries[i].file].path);
        const char *listed = json_string_value(json_object_get(map, name));
        if (!listed)
            return core_fail(err, DCP_ERR_CORRUPT, "%s: omits tensor '%s', which %s holds", path,
                             name, file);
        if (strcmp(listed, file))
            return core_fail(err, DCP_ERR_CORRUPT,
                             "%s: places tensor '%s' in %s, but %s holds it too", path, name,
                             listed, file);
    }
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value) {
        if (!dcp_st_find(reader, name))
            return core_fail(err, DCP_ERR_CORRUPT, "%s: names tensor '%s', which %s does not hold",
                             path, name, json_string_value(value));
    }
    return DCP_OK;
}

static int join(char *out, const char *dir, const char *name, dcp_error *err) {
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        return core_fail(err, DCP_ERR_ARG, "%.200s/%.200s: the path is too long", dir, name);
    return DCP_OK;
}

static int lies_in(const char *file, const char *folder) {
    char *real = realpath(folder, NULL);
    size_t n = real ? strlen(real) : 0;
    int in = real && !strncmp(file, real, n) && file[n] == '/';
    free(real);
    return in;
}

/* A file of the folder is in it when links are followed, or in Hugging Face's cache beside it: a
 * snapshot's files are links to ../../blobs. Nothing else that a link names is read. */
static int check_inside(const char *path, const char *dir, dcp_error *err) {
    char blobs[PATH_MAX], *real = realpath(path, NULL);
    if (!real) return core_fail_errno(err, "cannot open", path);
    int status = join(blobs, dir, "../../blobs", err);
    if (!status && !lies_in(real, dir) && !lies_in(real, blobs))
        status = core_fail(err, DCP_ERR_CORRUPT,
                           "%s: a link out of its folder: copy the file into the folder", path);
    free(real);
    return status;
}

static int open_listed(dcp_st_reader *reader, const char *dir, const char **names, size_t n,
                       dcp_error *err) {
    char path[PATH_MAX];
    int status = alloc_files(reader, n + 1, err);
    for (size_t i = 0; status == DCP_OK && i < n; i++) {
        status = join(path, dir, names[i], err);
        if (status == DCP_OK) status = check_inside(path, dir, err);
        if (status == DCP_OK) status = add_file(reader, path, err);
    }
    if (status == DCP_OK && reader->n)
        qsort(reader->entries, reader->n, sizeof *reader->entries, st_entry_compare_names);
    return status;
}

static int open_index(dcp_st_reader *reader, const char *dir, const char *path, dcp_error *err) {
    json_t *root = NULL;
    const char **names = NULL;
    size_t n = 0;
    int status = load_index(path, &root, err);
    if (status != DCP_OK) return status;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: has no weight_map", path);
    else
        status = list_files(path, map, &names, &n, err);
    if (status == DCP_OK) status = open_listed(reader, dir, names, n, err);
    if (status == DCP_OK) status = check_index(reader, path, map, err);
    free(names);
    json_decref(root);
    return status;
}

static int open_folder(dcp_st_reader *reader, const char *dir, dcp_error *err) {
    char path[PATH_MAX];
    int status = join(path, dir, "model.safetensors", err);
    if (status != DCP_OK) return status;
    if (access(path, F_OK) == 0) {
        status = check_inside(path, dir, err);
        if (status == DCP_OK) status = alloc_files(reader, 1, err);
        return status == DCP_OK ? add_file(reader, path, err) : status;
    }
    status = join(path, dir, "model.safetensors.index.json", err);
    if (status != DCP_OK) return status;
    if (access(path, F_OK))
        return core_fail(err, DCP_ERR_NOT_FOUND,
                         "%s: holds neither model.safetensors nor model.safetensors.index.json",
                         dir);
    status = check_inside(path, dir, err);
    return status == DCP_OK ? open_index(reader, dir, path, err) : status;
}

int dcp_st_open(const char *path, dcp_st_reader **out, dcp_error *err) {
    struct stat st;
    if (!path || !out) return core_fail(err, DCP_ERR_ARG, "dcp_st_open: path or out is NULL");
    if (stat(path, &st)) return core_fail_errno(err, "cannot open", path);
    dcp_st_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return core_fail_memory(err, sizeof *reader);
    int status;
    if (S_ISDIR(st.st_mode))
        status = open_folder(reader, path, err);
    else if ((status = alloc_files(reader, 1, err)) == DCP_OK)
        status = add_file(reader, path, err);
    if (status != DCP_OK)
        dcp_st_close(reader);
    else
        *out = reader;
    return status;
}

void dcp_st_close(dcp_st_reader *reader) {
    if (!reader) return;
    for (size_t i = 0; i < reader->n_files; i++) {
        close(reader->files[i].fd);
        free(reader->files[i].path);
    }
    free(reader->files);
    st_entries_free(reader->entries, reader->n);
    free(reader);
}

size_t dcp_st_tensors(const dcp_st_reader *reader) { return reader->n; }

const dcp_tensor *dcp_st_tensor(const dcp_st_reader *reader, size_t i) {
    return i < reader->n ? &reader->entries[i].tensor : NULL;
}

static const st_entry *find_entry(const dcp_st_reader *reader, const char *name) {
    st_entry key = {.tensor.path = name};
    return reader->n ? bsearch(&key, reader->entries, reader->n, sizeof key, st_entry_compare_names)
                     : NULL;
}

const dcp_tensor *dcp_st_find(const dcp_st_reader *reader, const char *name) {
    const st_entry *entry = name ? find_entry(reader, name) : NULL;
    return entry ? &entry->tensor : NULL;
}

int dcp_st_read(dcp_st_reader *reader, const char *name, uint64_t offset, uint64_t bytes, void *out,
                dcp_error *err) {
    if (!reader || !name || (!out && bytes))
        return core_fail(err, DCP_ERR_ARG, "dcp_st_read: reader, name or out is NULL");
    const st_entry *entry = find_entry(reader, name);
    if (!entry) return core_fail(err, DCP_ERR_NOT_FOUND, "safetensors: no tensor '%s'", name);
    uint64_t size = entry->end - entry->begin;
    if (offset > size || bytes > size - offset)
        return core_fail(
            err, DCP_ERR_ARG,
            "safetensors: bytes %llu + %llu are outside of tensor '%s', which has %llu",
            (unsigned long long)offset, (unsigned long long)bytes, name, (unsigned long long)size);
    const st_file *file = &reader->files[entry->file];
    return read_at(file->fd, file->path, file->data_start + entry->begin + offset, out, bytes, err);
}
