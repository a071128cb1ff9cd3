#include "data/joined_files.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/fail.h"
#include "programs/program.h"

enum { FEWEST_IDS = 128 }; /* fewer ids do not suffice to guess a width */

#define LLM_C "a file of llm.c, which begins with a header of 1,024 bytes"
#define LLM_C_ADVICE                                                                               \
    "write only the ids after the header (tail -c +1025), which have 2 bytes for GPT-2 and 4 for " \
    "Llama 3"

static const struct {
    const char *mark;
    size_t bytes;
    data_format format;
} formats[] = {
    {"\x93NUMPY",
     6,
     {"an array of numpy (.npy)",
      "write only its ids, as numpy.load(f).astype('uint16').tofile('ids.bin') does"}},
    {"PK\3\4", 4, {"a zip archive (.npz, .pt)", "unpack it, and write only the ids"}},
    {"\x1f\x8b\x08", 3, {"compressed by gzip", "unpack it"}},
    {"\x28\xb5\x2f\xfd", 4, {"compressed by zstd", "unpack it"}},
    {"MMIDIDX", 7, {"an index of Megatron (.idx)", "give only the .bin file beside it"}},
    {"\x88\xd8\x34\x01", 4, {LLM_C, LLM_C_ADVICE}}, /* 20240520, for GPT-2's ids */
    {"\xa1\xd9\x34\x01", 4, {LLM_C, LLM_C_ADVICE}}, /* 20240801, for Llama 3's */
    {"PAR1", 4, {"a parquet file", "write only the ids"}},
    {"ARROW1", 6, {"an Arrow file", "write only the ids"}},
    {"\x89HDF\r\n\x1a\n", 8, {"an HDF5 file", "write only the ids"}},
};

const data_format *data_formats_find(const uint8_t *begin, uint64_t bytes) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (bytes >= formats[i].bytes && memcmp(begin, formats[i].mark, formats[i].bytes) == 0)
            return &formats[i].format;
    return NULL;
}

/* Divides the bytes into groups of `wide` bytes, and returns true if in each group all bytes after
 * the first `width` are zero. Returns false if all bytes are zero. */
static bool is_padded(const uint8_t *ids, uint64_t bytes, uint32_t width, uint32_t wide) {
    int some = 0;
    for (uint64_t i = 0; i < bytes - bytes % wide; i++) {
        if (i % wide < width)
            some |= ids[i];
        else if (ids[i])
            return false;
    }
    return some;
}

uint32_t data_formats_width(const uint8_t *ids, uint64_t bytes, uint32_t width) {
    if (bytes < (uint64_t)FEWEST_IDS * width) return width;
    for (uint32_t wide = 4 * width; wide > width; wide /= 2)
        if (wide <= 8 && is_padded(ids, bytes, width, wide)) return wide;
    return width;
}

/* Reads files as one string of bytes. Only one descriptor is open at a time: a folder may contain
 * more files than a process may open. Sizes are as found at the start; a file that shrinks later is
 * an error, because the samples would differ between ranks and between runs. */

/* Writes the end of a message to text[]: what a relative path resolves to, or "" if the path is
 * absolute. */
static const char *describe_resolved_path(const char *path, char *text, size_t size) {
    char folder[PATH_MAX];
    *text = '\0';
    if (*path != '/' && getcwd(folder, sizeof folder))
        snprintf(text, size, "; relative to the current folder, where the run starts, it is %s/%s",
                 folder, path);
    return text;
}

/* A file that is missing or inaccessible at the start is the user's error; after other errors, the
 * file may be readable later. */
static int fail_to_find(const char *path, int code, dcp_error *err) {
    char place[2 * PATH_MAX];
    const bool is_missing = code == ENOENT || code == ENOTDIR;
    return core_fail(err, program_path_is_wrong(code) ? DCP_ERR_NOT_FOUND : DCP_ERR_IO,
                     "data.path: cannot read %s: %s%s; give an existing path", path, strerror(code),
                     is_missing ? describe_resolved_path(path, place, sizeof place) : "");
}

static int append_file(data_files *files, const char *path, uint64_t bytes, dcp_error *err) {
    if (access(path, R_OK) != 0) return fail_to_find(path, errno, err);
    if (bytes == 0) return DCP_OK;
    if ((files->n & (files->n - 1)) == 0) { /* the list is full if n is a power of two */
        const size_t room = files->n ? 2 * files->n : 1;
        data_file *grown = realloc(files->list, room * sizeof *grown);
        if (!grown) return core_fail_memory(err, room * sizeof *grown);
        files->list = grown;
    }
    char *copy = strdup(path);
    if (!copy) return core_fail_memory(err, strlen(path));
    files->list[files->n++] = (data_file){.path = copy, .bytes = bytes};
    return DCP_OK;
}

/* Adds what fts found at `entry`. Links below the given path are not followed: they may form
 * cycles. */
static int add_entry(data_files *files, const FTSENT *entry, dcp_error *err) {
    if (entry->fts_info == FTS_F && S_ISREG(entry->fts_statp->st_mode))
        return append_file(files, entry->fts_path, (uint64_t)entry->fts_statp->st_size, err);
    if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
        return fail_to_find(entry->fts_path, entry->fts_errno, err);
    return DCP_OK;
}

/* Names below the given path that begin with a dot (.git, an editor's copies) are ignored, as in a
 * glob. */
static bool is_hidden(const FTSENT *entry) {
    return entry->fts_level > FTS_ROOTLEVEL && entry->fts_name[0] == '.';
}

static int add_tree(data_files *files, char *path, dcp_error *err) {
    char *const roots[] = {path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    if (!walk) return fail_to_find(path, errno, err);
    int status = DCP_OK;
    for (FTSENT *entry; status == DCP_OK && (entry = fts_read(walk));)
        if (is_hidden(entry))
            fts_set(walk, entry, FTS_SKIP);
        else
            status = add_entry(files, entry, err);
    fts_close(walk);
    return status;
}

static int add_path(data_files *files, const char *path, dcp_error *err) {
    struct stat st;
    if (stat(path, &st) == 0 || !strpbrk(path, "*?[")) {
        char *copy = strdup(path);
        if (!copy) return core_fail_memory(err, strlen(path));
        const int status = add_tree(files, copy, err);
        free(copy);
        return status;
    }
    glob_t found;
    const int failed = glob(path, GLOB_NOSORT, NULL, &found);
    char place[2 * PATH_MAX];
    if (failed == GLOB_NOMATCH)
        return core_fail(err, DCP_ERR_NOT_FOUND,
                         "data.path: nothing matches %s%s; give an existing path", path,
                         describe_resolved_path(path, place, sizeof place));
    if (failed) return core_fail_memory(err, 0);
    int status = DCP_OK;
    for (size_t i = 0; i < found.gl_pathc && status == DCP_OK; i++)
        status = add_tree(files, found.gl_pathv[i], err);
    globfree(&found);
    return status;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const data_file *)a)->path, ((const data_file *)b)->path);
}

static void find_begins(data_files *files) {
    files->bytes = 0;
    for (size_t i = 0; i < files->n; i++) {
        files->list[i].begin = files->bytes;
        files->bytes += files->list[i].bytes;
    }
}

int data_files_find(const char *path, data_files *out, dcp_error *err) {
    data_files files = {.fd = -1};
    const int status = add_path(&files, path, err);
    if (status != DCP_OK) {
        data_files_close(&files);
        return status;
    }
    if (files.n) qsort(files.list, files.n, sizeof *files.list, by_path);
    find_begins(&files);
    *out = files;
    return DCP_OK;
}

typedef struct file_identity {
    dev_t device;
    ino_t number;
} file_identity;

static file_identity identify_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (file_identity){st.st_dev, st.st_ino} : (file_identity){0};
}

static int by_identity(const void *a, const void *b) {
    const file_identity *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* The path of the first of `others` that is also one of `files`. */
static char *find_shared(const data_files *files, const data_files *others) {
    file_identity *known = malloc((files->n + 1) * sizeof *known);
    char *found = NULL;
    for (size_t i = 0; known && i < files->n; i++) known[i] = identify_file(files->list[i].path);
    if (known) qsort(known, files->n, sizeof *known, by_identity);
    for (size_t i = 0; known && !found && i < others->n; i++) {
        const file_identity own = identify_file(others->list[i].path);
        if (own.number && bsearch(&own, known, files->n, sizeof own, by_identity))
            found = strdup(others->list[i].path);
    }
    free(known);
    return found;
}

char *data_files_shared(const char *path, const char *other) {
    data_files files = {.fd = -1}, others = {.fd = -1};
    dcp_error ignored;
    char *found = NULL;
    if (data_files_find(path, &files, &ignored) == DCP_OK &&
        data_files_find(other, &others, &ignored) == DCP_OK)
        found = find_shared(&files, &others);
    data_files_close(&files);
    data_files_close(&others);
    return found;
}

int data_files_append(data_files *files, const char *path, dcp_error *err) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return core_fail(err, DCP_ERR_NOT_FOUND,
                         "data.path: %s is not a readable file; replace it with one", path);
    const int status = append_file(files, path, (uint64_t)st.st_size, err);
    find_begins(files);
    return status;
}

void data_files_keep(data_files *files, bool (*keep)(const char *path)) {
    size_t kept = 0;
    for (size_t i = 0; i < files->n; i++)
        if (keep(files->list[i].path))
            files->list[kept++] = files->list[i];
        else
            free(files->list[i].path);
    files->n = kept;
    find_begins(files);
}

void data_files_close(data_files *files) {
    for (size_t i = 0; i < files->n; i++) free(files->list[i].path);
    free(files->list);
    if (files->fd >= 0) close(files->fd);
    *files = (data_files){.fd = -1};
}

static size_t file_at(const data_files *files, uint64_t offset) {
    return data_sorted_last(&files->list->begin, files->n, sizeof *files->list, offset);
}

const char *data_files_at(const data_files *files, uint64_t offset, uint64_t *within) {
    const data_file *file = &files->list[file_at(files, offset)];
    *within = offset - file->begin;
    return file->path;
}

static int open_nth_file(data_files *files, size_t i, dcp_error *err) {
    if (files->fd >= 0 && files->open == i) return DCP_OK;
    if (files->fd >= 0) close(files->fd);
    files->open = i;
    files->fd = open(files->list[i].path, O_RDONLY | O_CLOEXEC);
    if (files->fd >= 0) return DCP_OK;
    return core_fail(err, DCP_ERR_IO, "data.path: cannot open %s: %s", files->list[i].path,
                     strerror(errno));
}

static int read_within(const data_files *files, uint64_t offset, uint64_t bytes, char *out,
                       dcp_error *err) {
    const char *path = files->list[files->open].path;
    while (bytes > 0) {
        const ssize_t n = pread(files->fd, out, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return core_fail(err, DCP_ERR_IO, "data.path: reading %s: %s", path, strerror(errno));
        if (n == 0) return core_fail(err, DCP_ERR_IO, "data.path: %s has become shorter", path);
        out += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return DCP_OK;
}

int data_files_read(data_files *files, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    char *to = out;
    while (bytes > 0) {
        const size_t i = file_at(files, offset);
        const uint64_t within = offset - files->list[i].begin;
        const uint64_t left = files->list[i].bytes - within;
        const uint64_t piece = left < bytes ? left : bytes;
        int status = open_nth_file(files, i, err);
        if (status == DCP_OK) status = read_within(files, within, piece, to, err);
        if (status != DCP_OK) return status;
        to += piece;
        offset += piece;
        bytes -= piece;
    }
    return DCP_OK;
}
