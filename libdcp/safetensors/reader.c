/* Reads safetensors: one file, or a folder of files with model.safetensors.index.json.
 *
 * Only a bounded number of a folder's files are open at a time (io/descriptors.h); a file must not
 * change after it was first opened. A reader's entries are sorted by name over all files, and each
 * lies within its file. The names of a folder's files are not trusted until they have been checked.
 * After the check, a name is assumed to lead to the same file when it is opened: anyone who can
 * exchange the file in between can write into the folder anyway. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/checks.h"
#include "core/fail.h"
#include "dcp/safetensors.h"
#include "io/descriptors.h"
#include "safetensors/header.h"
#include "safetensors/weight_map.h"

/* O_NONBLOCK: opening a named pipe must not wait for a writer. */
static int open_regular(const char *path, int *fd_out, uint64_t *size_out, dcp_error *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return core_fail_errno(err, "cannot open", path);
    int status = DCP_OK;
    if (fstat(fd, &st))
        status = core_fail_errno(err, "cannot stat", path);
    else if (!S_ISREG(st.st_mode))
        status = core_fail_at(err, DCP_ERR_IO, path, "not a regular file");
    if (status != DCP_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    *size_out = (uint64_t)st.st_size;
    return DCP_OK;
}

/* Writes "dir/name" into out[PATH_MAX]. */
static int join_path(char *out, const char *dir, const char *name, dcp_error *err) {
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        return core_fail(err, DCP_ERR_ARG, "%.200s/%.200s: the path is too long", dir, name);
    return DCP_OK;
}

static int lies_in(const char *file, const char *folder, bool *in, dcp_error *err) {
    char *real = realpath(folder, NULL);
    size_t n = real ? strlen(real) : 0;
    *in = real && !strncmp(file, real, n) && file[n] == '/';
    if (!real && errno != ENOENT && errno != ENOTDIR)
        return core_fail_errno(err, "cannot look at", folder);
    free(real);
    return DCP_OK;
}

/* Checks that the file, with links followed, lies in the folder or in Hugging Face's cache beside
 * it: a snapshot's files are links to ../../blobs. Other targets of links are not read. */
static int check_inside(const char *path, const char *dir, dcp_error *err) {
    char blobs[PATH_MAX], *real = realpath(path, NULL);
    if (!real) return core_fail_errno(err, "cannot open", path);
    bool in = false;
    int status = join_path(blobs, dir, "../../blobs", err);
    if (!status) status = lies_in(real, dir, &in, err);
    if (!status && !in) status = lies_in(real, blobs, &in, err);
    if (!status && !in)
        status = core_fail_at(err, DCP_ERR_CORRUPT, path,
                              "a link out of its folder: copy the file into the folder");
    free(real);
    return status;
}

int dcp_st_open_file(const char *folder, const char *name, int *fd, uint64_t *bytes,
                     dcp_error *err) {
    char path[PATH_MAX];
    if (!folder || !name || !fd || !bytes)
        return core_fail(err, DCP_ERR_ARG, "dcp_st_open_file: an argument is NULL");
    int status = core_path_check(NULL, folder, err);
    if (status == DCP_OK) status = join_path(path, folder, name, err);
    if (status == DCP_OK) status = check_inside(path, folder, err);
    return status == DCP_OK ? open_regular(path, fd, bytes, err) : status;
}

typedef struct safetensors_part {
    char *path, *real; /* the path as given; the path without links, which are resolved once */
    io_file file;
    uint64_t identity[4]; /* from io_identify, when the file was first opened */
    uint64_t data_start;
} safetensors_part;

struct dcp_st_reader {
    safetensors_part *files;
    size_t n_files;
    safetensors_entry *entries;
    size_t n;
    bool may_lack; /* tensors in the index may be missing */
    char **absent;
    size_t n_absent;
};

static int read_header(safetensors_part *file, uint64_t size, safetensors_entry **out,
                       size_t *n_out, dcp_error *err) {
    uint64_t length;
    if (size < ST_PREFIX_BYTES)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                            "%llu bytes are too few for a safetensors file",
                            (unsigned long long)size);
    int status = io_read_plain(file->file.fd, &length, sizeof length, 0, file->path, err);
    if (status != DCP_OK) return status;
    if (memcmp(&length, "version ", sizeof length) == 0)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                            "a pointer of Git LFS, not the file itself: `git lfs pull` fetches it");
    length = le64toh(length);
    if (length > ST_MAX_HEADER)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                            "the header claims %llu bytes, more than %u: not a safetensors file?",
                            (unsigned long long)length, ST_MAX_HEADER);
    if (length > size - ST_PREFIX_BYTES)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                            "the header claims %llu bytes, the file has only %llu: truncated?",
                            (unsigned long long)length, (unsigned long long)size);
    char *json = malloc(length + 1);
    if (!json) return core_fail_memory(err, length + 1);
    status = io_read_plain(file->file.fd, json, length, ST_PREFIX_BYTES, file->path, err);
    file->data_start = ST_PREFIX_BYTES + length;
    if (status == DCP_OK)
        status = safetensors_header_parse(file->path, json, length, size - file->data_start, out,
                                          n_out, err);
    free(json);
    return status;
}

static int append_entries(dcp_st_reader *reader, safetensors_entry *more, size_t n,
                          dcp_error *err) {
    safetensors_entry *grown = core_array_grow(reader->entries, reader->n + n + 1, sizeof *grown);
    if (!grown) return core_fail_memory(err, (reader->n + n + 1) * sizeof *grown);
    for (size_t i = 0; i < n; i++) {
        more[i].file = reader->n_files - 1;
        grown[reader->n + i] = more[i];
    }
    reader->entries = grown;
    reader->n += n;
    return DCP_OK;
}

/* Opens the file and records its path and identity. */
static int open_part(safetensors_part *file, const char *path, uint64_t *size, dcp_error *err) {
    int status = open_regular(path, &file->file.fd, size, err);
    if (status != DCP_OK) return status;
    file->path = strdup(path);
    io_identify(file->file.fd, file->identity);
    return file->path ? DCP_OK : core_fail_memory(err, strlen(path) + 1);
}

/* After this call, the cache of descriptors may close the file while it is not being read. */
static int lend_part(safetensors_part *file, dcp_error *err) {
    file->real = realpath(file->path, NULL);
    if (!file->real) return core_fail_errno(err, "cannot open", file->path);
    file->file.path = file->real;
    io_fd_adopt(&file->file, IO_READ_BUFFERED);
    return DCP_OK;
}

/* reader->files must have room. */
static int add_part(dcp_st_reader *reader, const char *path, dcp_error *err) {
    safetensors_part *file = &reader->files[reader->n_files++];
    safetensors_entry *entries = NULL;
    size_t n = 0;
    uint64_t size = 0;
    file->file.fd = -1;
    int status = open_part(file, path, &size, err);
    if (status == DCP_OK) status = read_header(file, size, &entries, &n, err);
    if (status != DCP_OK) return status;
    status = append_entries(reader, entries, n, err);
    if (status == DCP_OK)
        free(entries);
    else
        safetensors_entries_free(entries, n);
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

/* Checks that each entry is in the file that the index names. The reader's files are the files that
 * the index lists, in the same order. */
static int check_listed(const dcp_st_reader *reader, const char *path, const safetensors_map *index,
                        dcp_error *err) {
    for (size_t i = 0; i < reader->n; i++) {
        const char *name = reader->entries[i].tensor.path;
        const char *file = base_name(reader->files[reader->entries[i].file].path);
        const safetensors_place *place = safetensors_map_find(index, name);
        if (!place)
            return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, path,
                                                 "omits tensor '%s', which %s holds", name, file),
                                    name, err);
        if (place->file != reader->entries[i].file)
            return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, path,
                                                 "places tensor '%s' in %s, but %s holds it too",
                                                 name, index->files[place->file], file),
                                    name, err);
    }
    return DCP_OK;
}

static int note_absent(dcp_st_reader *reader, const char *path, const safetensors_map *index,
                       const safetensors_place *place, dcp_error *err) {
    if (!reader->may_lack)
        return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, path,
                                             "names tensor '%s', which %s does not hold",
                                             place->tensor, index->files[place->file]),
                                place->tensor, err);
    char **absent = core_array_grow(reader->absent, reader->n_absent + 1, sizeof *absent);
    if (absent) reader->absent = absent;
    char *copy = absent ? strdup(place->tensor) : NULL;
    if (!copy) return core_fail_memory(err, strlen(place->tensor) + 1);
    absent[reader->n_absent++] = copy;
    return DCP_OK;
}

static int check_index(dcp_st_reader *reader, const char *path, const safetensors_map *index,
                       dcp_error *err) {
    int status = check_listed(reader, path, index, err);
    for (size_t i = 0; status == DCP_OK && i < index->n; i++)
        if (!dcp_st_find(reader, index->places[i].tensor))
            status = note_absent(reader, path, index, &index->places[i], err);
    return status;
}

static int open_listed(dcp_st_reader *reader, const char *dir, const safetensors_map *index,
                       dcp_error *err) {
    char path[PATH_MAX];
    int status = alloc_files(reader, index->n_files + 1, err);
    for (size_t i = 0; status == DCP_OK && i < index->n_files; i++) {
        status = join_path(path, dir, index->files[i], err);
        if (status == DCP_OK) status = check_inside(path, dir, err);
        if (status == DCP_OK) status = add_part(reader, path, err);
        if (status == DCP_OK) status = lend_part(&reader->files[i], err);
    }
    if (status == DCP_OK && reader->n)
        qsort(reader->entries, reader->n, sizeof *reader->entries, safetensors_entry_compare);
    return status;
}

static int load_index(const char *path, safetensors_map *out, dcp_error *err) {
    int fd = -1;
    uint64_t size = 0;
    int status = open_regular(path, &fd, &size, err);
    if (status != DCP_OK) return status;
    char *text = NULL;
    if (size > ST_MAX_HEADER)
        status = core_fail_at(err, DCP_ERR_CORRUPT, path, "has %llu bytes, more than %u",
                              (unsigned long long)size, ST_MAX_HEADER);
    else if (!(text = malloc(size + 1)))
        status = core_fail_memory(err, size);
    if (status == DCP_OK) status = io_read_plain(fd, text, size, 0, path, err);
    if (status == DCP_OK)
        status = safetensors_map_parse(path, (safetensors_value){text, size}, out, err);
    free(text);
    close(fd);
    return status;
}

static int open_index(dcp_st_reader *reader, const char *dir, const char *path, dcp_error *err) {
    safetensors_map index = {0};
    int status = load_index(path, &index, err);
    if (status != DCP_OK) return status;
    status = open_listed(reader, dir, &index, err);
    if (status == DCP_OK) status = check_index(reader, path, &index, err);
    safetensors_map_free(&index);
    return status;
}

static int look_for(const char *path, bool *is_there, dcp_error *err) {
    *is_there = access(path, F_OK) == 0;
    if (*is_there || errno == ENOENT || errno == ENOTDIR) return DCP_OK;
    return core_fail_errno(err, "cannot look at", path);
}

static int open_folder(dcp_st_reader *reader, const char *dir, dcp_error *err) {
    char path[PATH_MAX];
    bool is_there;
    int status = join_path(path, dir, "model.safetensors", err);
    if (status == DCP_OK) status = look_for(path, &is_there, err);
    if (status != DCP_OK) return status;
    if (is_there) {
        status = check_inside(path, dir, err);
        if (status == DCP_OK) status = alloc_files(reader, 1, err);
        return status == DCP_OK ? add_part(reader, path, err) : status;
    }
    status = join_path(path, dir, "model.safetensors.index.json", err);
    if (status == DCP_OK) status = look_for(path, &is_there, err);
    if (status != DCP_OK) return status;
    if (!is_there)
        return core_fail_at(err, DCP_ERR_NOT_FOUND, dir,
                            "holds neither model.safetensors nor model.safetensors.index.json");
    status = check_inside(path, dir, err);
    return status == DCP_OK ? open_index(reader, dir, path, err) : status;
}

static bool is_index(const char *path) {
    static const char end[] = ".safetensors.index.json";
    const size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

static int open_index_path(dcp_st_reader *reader, const char *path, dcp_error *err) {
    char dir[PATH_MAX] = ".";
    const size_t length = (size_t)(base_name(path) - path);
    if (length >= sizeof dir) return core_fail_at(err, DCP_ERR_ARG, path, "the path is too long");
    if (length) snprintf(dir, sizeof dir, "%.*s", (int)length, path);
    const int status = check_inside(path, dir, err);
    return status == DCP_OK ? open_index(reader, dir, path, err) : status;
}

static int open_path(const char *path, bool may_lack, dcp_st_reader **out, dcp_error *err) {
    struct stat st;
    int status = core_path_check(NULL, path, err);
    if (status != DCP_OK) return status;
    if (stat(path, &st)) return core_fail_errno(err, "cannot open", path);
    dcp_st_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return core_fail_memory(err, sizeof *reader);
    reader->may_lack = may_lack;
    if (S_ISDIR(st.st_mode))
        status = open_folder(reader, path, err);
    else if (is_index(path))
        status = open_index_path(reader, path, err);
    else if ((status = alloc_files(reader, 1, err)) == DCP_OK)
        status = add_part(reader, path, err);
    if (status != DCP_OK)
        dcp_st_close(reader);
    else
        *out = reader;
    return status;
}

int dcp_st_open(const char *path, dcp_st_reader **out, dcp_error *err) {
    if (!path || !out) return core_fail(err, DCP_ERR_ARG, "dcp_st_open: path or out is NULL");
    return open_path(path, false, out, err);
}

int dcp_st_open_incomplete(const char *path, dcp_st_reader **out, dcp_error *err) {
    if (!path || !out)
        return core_fail(err, DCP_ERR_ARG, "dcp_st_open_incomplete: path or out is NULL");
    return open_path(path, true, out, err);
}

const char *dcp_st_absent(const dcp_st_reader *reader, size_t i) {
    return reader && i < reader->n_absent ? reader->absent[i] : NULL;
}

void dcp_st_close(dcp_st_reader *reader) {
    if (!reader) return;
    for (size_t i = 0; i < reader->n_absent; i++) free(reader->absent[i]);
    free(reader->absent);
    for (size_t i = 0; i < reader->n_files; i++) {
        io_fd_close(&reader->files[i].file);
        free(reader->files[i].path);
        free(reader->files[i].real);
    }
    free(reader->files);
    safetensors_entries_free(reader->entries, reader->n);
    free(reader);
}

size_t dcp_st_files(const dcp_st_reader *reader) { return reader ? reader->n_files : 0; }

const char *dcp_st_file(const dcp_st_reader *reader, size_t i) {
    return i < dcp_st_files(reader) ? reader->files[i].path : NULL;
}

size_t dcp_st_tensors(const dcp_st_reader *reader) { return reader ? reader->n : 0; }

const dcp_tensor *dcp_st_tensor(const dcp_st_reader *reader, size_t i) {
    return i < dcp_st_tensors(reader) ? &reader->entries[i].tensor : NULL;
}

static const safetensors_entry *find_entry(const dcp_st_reader *reader, const char *name) {
    safetensors_entry key = {.tensor.path = name};
    return reader->n
               ? bsearch(&key, reader->entries, reader->n, sizeof key, safetensors_entry_compare)
               : NULL;
}

const dcp_tensor *dcp_st_find(const dcp_st_reader *reader, const char *name) {
    const safetensors_entry *entry = reader && name ? find_entry(reader, name) : NULL;
    return entry ? &entry->tensor : NULL;
}

/* Checks that this is the file that was originally opened, unchanged: another file may have its
 * name by now, or its bytes may have changed. */
static int check_same(const safetensors_part *file, dcp_error *err) {
    uint64_t now[4];
    io_identify(file->file.fd, now);
    if (!memcmp(now, file->identity, sizeof now)) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                        "was replaced or changed while it was read");
}

int dcp_st_read(dcp_st_reader *reader, const char *name, uint64_t offset, uint64_t bytes, void *out,
                dcp_error *err) {
    if (!reader || !name || (!out && bytes))
        return core_fail(err, DCP_ERR_ARG, "dcp_st_read: reader, name or out is NULL");
    const safetensors_entry *entry = find_entry(reader, name);
    if (!entry)
        return core_fail_tensor(
            core_fail(err, DCP_ERR_NOT_FOUND, "safetensors: no tensor '%s'", name), name, err);
    uint64_t size = entry->end - entry->begin;
    if (offset > size || bytes > size - offset)
        return core_fail_tensor(
            core_fail(err, DCP_ERR_ARG,
                      "safetensors: bytes %llu + %llu are outside of tensor '%s', which has %llu",
                      (unsigned long long)offset, (unsigned long long)bytes, name,
                      (unsigned long long)size),
            name, err);
    safetensors_part *file = &reader->files[entry->file];
    int status = io_fd_acquire(&file->file, err);
    if (status != DCP_OK) return status;
    status = check_same(file, err);
    if (status == DCP_OK)
        status = io_read_plain(file->file.fd, out, bytes, file->data_start + entry->begin + offset,
                               file->path, err);
    io_fd_release(&file->file);
    return status;
}
