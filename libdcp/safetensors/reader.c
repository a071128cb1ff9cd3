/* Reading safetensors: one file, or a folder of files under model.safetensors.index.json.
 *
 * A reader holds every file open; its entries ascend by name over all files, and each lies within
 * its file as that was when it was opened. */
#include <endian.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fail.h"
#include "dcp/safetensors.h"
#include "safetensors/files.h"
#include "safetensors/header.h"
#include "safetensors/index.h"

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

static int read_header(st_file *file, uint64_t size, st_entry **out, size_t *n_out,
                       dcp_error *err) {
    uint64_t length;
    if (size < ST_PREFIX_BYTES)
        return core_fail(err, DCP_ERR_CORRUPT, "%s: %llu bytes are too few for a safetensors file",
                         file->path, (unsigned long long)size);
    int status = st_read_at(file->fd, file->path, 0, &length, sizeof length, err);
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
    status = st_read_at(file->fd, file->path, ST_PREFIX_BYTES, json, length, err);
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
    int status = st_open_regular(path, &file->fd, &size, err);
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

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Each entry must be where the index says, and each name of the index must have an entry. The
 * reader's files are the index', in its order. */
static int check_index(const dcp_st_reader *reader, const char *path, const st_index *index,
                       dcp_error *err) {
    for (size_t i = 0; i < reader->n; i++) {
        const char *name = reader->entries[i].tensor.path;
        const char *file = base_name(reader->files[reader->entries[i].file].path);
        const st_place *place = st_index_find(index, name);
        if (!place)
            return core_fail(err, DCP_ERR_CORRUPT, "%s: omits tensor '%s', which %s holds", path,
                             name, file);
        if (place->file != reader->entries[i].file)
            return core_fail(err, DCP_ERR_CORRUPT,
                             "%s: places tensor '%s' in %s, but %s holds it too", path, name,
                             index->files[place->file], file);
    }
    for (size_t i = 0; i < index->n; i++)
        if (!dcp_st_find(reader, index->places[i].tensor))
            return core_fail(err, DCP_ERR_CORRUPT, "%s: names tensor '%s', which %s does not hold",
                             path, index->places[i].tensor, index->files[index->places[i].file]);
    return DCP_OK;
}

static int open_listed(dcp_st_reader *reader, const char *dir, const st_index *index,
                       dcp_error *err) {
    char path[PATH_MAX];
    int status = alloc_files(reader, index->n_files + 1, err);
    for (size_t i = 0; status == DCP_OK && i < index->n_files; i++) {
        status = st_join(path, dir, index->files[i], err);
        if (status == DCP_OK) status = st_check_inside(path, dir, err);
        if (status == DCP_OK) status = add_file(reader, path, err);
    }
    if (status == DCP_OK && reader->n)
        qsort(reader->entries, reader->n, sizeof *reader->entries, st_entry_compare_names);
    return status;
}

static int load_index(const char *path, st_index *out, dcp_error *err) {
    int fd = -1;
    uint64_t size = 0;
    int status = st_open_regular(path, &fd, &size, err);
    if (status != DCP_OK) return status;
    char *text = NULL;
    if (size > ST_MAX_HEADER)
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: has %llu bytes, more than %u", path,
                           (unsigned long long)size, ST_MAX_HEADER);
    else if (!(text = malloc(size + 1)))
        status = core_fail_memory(err, size);
    if (status == DCP_OK) status = st_read_at(fd, path, 0, text, size, err);
    if (status == DCP_OK) status = st_index_parse(path, (st_value){text, size}, out, err);
    free(text);
    close(fd);
    return status;
}

static int open_index(dcp_st_reader *reader, const char *dir, const char *path, dcp_error *err) {
    st_index index = {0};
    int status = load_index(path, &index, err);
    if (status != DCP_OK) return status;
    status = open_listed(reader, dir, &index, err);
    if (status == DCP_OK) status = check_index(reader, path, &index, err);
    st_index_free(&index);
    return status;
}

static int open_folder(dcp_st_reader *reader, const char *dir, dcp_error *err) {
    char path[PATH_MAX];
    int status = st_join(path, dir, "model.safetensors", err);
    if (status != DCP_OK) return status;
    if (access(path, F_OK) == 0) {
        status = st_check_inside(path, dir, err);
        if (status == DCP_OK) status = alloc_files(reader, 1, err);
        return status == DCP_OK ? add_file(reader, path, err) : status;
    }
    status = st_join(path, dir, "model.safetensors.index.json", err);
    if (status != DCP_OK) return status;
    if (access(path, F_OK))
        return core_fail(err, DCP_ERR_NOT_FOUND,
                         "%s: holds neither model.safetensors nor model.safetensors.index.json",
                         dir);
    status = st_check_inside(path, dir, err);
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

size_t dcp_st_files(const dcp_st_reader *reader) { return reader ? reader->n_files : 0; }

const char *dcp_st_file(const dcp_st_reader *reader, size_t i) {
    return i < dcp_st_files(reader) ? reader->files[i].path : NULL;
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
    return st_read_at(file->fd, file->path, file->data_start + entry->begin + offset, out, bytes,
                      err);
}
