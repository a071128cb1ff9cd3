/* Data are moved in pieces, whose size bounds the memory.
 *
 * The bytes of all tensors, as stored and in the order of export_contents, are divided into one
 * range per rank. A piece belongs to the rank whose range contains the piece's first byte. Only
 * that rank reads the piece, and writes it to its position. */
#include "export/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/program.h"

#define PIECE_BYTES (16u << 20) /* several of the checkpoint's blocks of 4 MiB */

typedef struct stream {
    dcp_checkpoint *ckpt;
    const dcp_tensor *stored;
    dcp_dtype as;
    uint64_t begin, end; /* the range of the stored bytes in which pieces must begin */
    void *in, *out;      /* equal if the type is not converted */
    uint64_t *overflows; /* may be NULL */
} stream;

/* Returns true if element i is infinite. dtype: F32, F16 or BF16, the types to which a cast
 * converts. */
static bool is_infinite(dcp_dtype dtype, const void *elements, uint64_t i) {
    if (dtype == DCP_F32) return (((const uint32_t *)elements)[i] & 0x7fffffff) == 0x7f800000;
    return (((const uint16_t *)elements)[i] & 0x7fff) == (dtype == DCP_F16 ? 0x7c00 : 0x7f80);
}

/* Returns the number of the n converted elements that are infinite now but were finite before. */
static uint64_t count_overflows(const stream *s, uint64_t n) {
    const uint64_t size = dcp_dtype_bytes(s->stored->dtype);
    uint64_t found = 0, overflows = 0;
    for (uint64_t i = 0; i < n; i++) found += (uint64_t)is_infinite(s->as, s->out, i);
    for (uint64_t i = 0; found && i < n; i++) {
        double value = 0;
        if (!is_infinite(s->as, s->out, i)) continue;
        found--;
        dcp_convert(s->stored->dtype, (const char *)s->in + i * size, DCP_F64, &value, 1);
        overflows += isfinite(value) != 0;
    }
    return overflows;
}

static int pass_piece(const stream *s, const dcp_box *piece, uint64_t first, uint64_t n,
                      export_sink sink, void *ctx) {
    dcp_error err = {0};
    uint64_t size = dcp_dtype_bytes(s->as);
    int stopped = launch_check_stopped();
    if (stopped) return stopped;
    if (dcp_checkpoint_read(s->ckpt, s->stored->path, piece, s->in, &err))
        return program_report(&err);
    if (s->out != s->in) dcp_convert(s->stored->dtype, s->in, s->as, s->out, n);
    if (s->out != s->in && s->overflows) *s->overflows += count_overflows(s, n);
    return sink(ctx, first * size, s->out, n * size);
}

static int pass_pieces(const stream *s, export_sink sink, void *ctx) {
    const dcp_box whole = dcp_box_whole(s->stored);
    const uint64_t size = dcp_dtype_bytes(s->stored->dtype);
    uint64_t elems = dcp_box_elems(&whole, s->stored->ndim);
    for (uint64_t first = 0; first < elems && first * size < s->end;) {
        dcp_box piece;
        uint64_t n = dcp_box_slice(s->stored->ndim, &whole, first, PIECE_BYTES / size, &piece);
        int status = first * size < s->begin ? 0 : pass_piece(s, &piece, first, n, sink, ctx);
        if (status) return status;
        first += n;
    }
    return 0;
}

int export_stream_tensor(dcp_checkpoint *ckpt, const char *source, dcp_dtype as, uint64_t begin,
                         uint64_t end, uint64_t *overflows, export_sink sink, void *ctx) {
    const dcp_tensor *stored = dcp_checkpoint_find(ckpt, source);
    stream s = {.ckpt = ckpt,
                .stored = stored,
                .as = as,
                .begin = begin,
                .end = end,
                .overflows = overflows};
    int status = 0;
    s.in = malloc(PIECE_BYTES);
    s.out = as == stored->dtype
                ? s.in
                : malloc(PIECE_BYTES / dcp_dtype_bytes(stored->dtype) * dcp_dtype_bytes(as));
    if (s.in && s.out)
        status = pass_pieces(&s, sink, ctx);
    else
        status = program_no_memory();
    if (s.out != s.in) free(s.out);
    free(s.in);
    return status;
}

enum { PAGE = 4096, BUFFER = 16 << 20 };

/* Writes ranges of an existing file. If the file system permits, whole pages bypass the page cache,
 * because that is several times as fast. They are written from a buffer in which they have the same
 * alignment as in the file. A range may begin and end inside a page; such parts of pages go through
 * the page cache, because another rank may write the rest of the page. */
typedef struct output_file {
    int fd, direct; /* descriptors; fd is -1 if no file is open; direct is -1 if direct writes are
                       not supported */
    char path[PATH_MAX + 80];
    char *buffer;            /* byte i of the buffer is byte base + i of the file */
    uint64_t base, from, to; /* [from, to) of the buffer is still to be written */
} output_file;

/* Writes [from, to) of the buffer. If the file system refuses a direct write, although it accepted
 * O_DIRECT, continues without direct writes. */
static int write_output_range(output_file *out, int fd, uint64_t from, uint64_t to) {
    while (from < to) {
        ssize_t put = pwrite(fd, out->buffer + from, to - from, (off_t)(out->base + from));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EINVAL && fd != out->fd) {
            fd = out->fd;
            continue;
        }
        if (put < 0) return program_fail_errno("cannot write", out->path);
        from += (uint64_t)put;
        if (from % PAGE) fd = out->fd; /* after a short write, the rest does not begin on a page */
    }
    return 0;
}

/* Writes the whole pages of the buffer. With `all`, also writes the rest; otherwise moves the rest,
 * a part of the last page, to the start of the buffer. */
static int flush_output(output_file *out, bool all) {
    uint64_t first = (out->from + PAGE - 1) / PAGE * PAGE, last = out->to / PAGE * PAGE;
    if (first > last) first = last = out->to;
    int status = write_output_range(out, out->fd, out->from, first);
    if (status == 0)
        status = write_output_range(out, out->direct < 0 ? out->fd : out->direct, first, last);
    if (status == 0 && all) status = write_output_range(out, out->fd, last, out->to);
    if (status || all) {
        out->from = out->to = 0;
        return status;
    }
    memcpy(out->buffer, out->buffer + last, out->to - last);
    out->base += last;
    out->to -= last;
    out->from = 0;
    return 0;
}

/* Writes `data` at `offset`, or stores it in the buffer, joined with earlier data that end at
 * `offset`. The caller may overwrite `data` after the return. */
static int output_write(output_file *out, uint64_t offset, const void *data, uint64_t bytes) {
    int status = 0;
    if (out->from == out->to || out->base + out->to != offset) {
        status = flush_output(out, true);
        out->base = offset / PAGE * PAGE;
        out->from = out->to = offset % PAGE;
    }
    for (uint64_t done = 0; status == 0 && done < bytes;) {
        uint64_t part = BUFFER - out->to < bytes - done ? BUFFER - out->to : bytes - done;
        memcpy(out->buffer + out->to, (const char *)data + done, part);
        out->to += part;
        done += part;
        if (out->to == BUFFER) status = flush_output(out, false);
    }
    return status;
}

/* Writes the rest of the buffer and makes the file durable. If `status` is not 0, only closes the
 * file and returns `status`. Ignores a file that is not open. */
static int output_close(output_file *out, int status) {
    if (out->fd < 0) return status;
    if (status == 0) status = flush_output(out, true);
    if (status == 0 && fsync(out->fd)) status = program_fail_errno("cannot sync", out->path);
    if (out->direct >= 0) close(out->direct);
    close(out->fd);
    free(out->buffer);
    out->fd = -1;
    return status;
}

static int output_open(output_file *out, const char *path) {
    *out = (output_file){.fd = -1, .direct = -1};
    snprintf(out->path, sizeof out->path, "%s", path);
    out->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (out->fd < 0) return program_fail_errno("cannot open", path);
    out->direct = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT);
    void *memory;
    if (posix_memalign(&memory, PAGE, BUFFER)) {
        output_close(out, PROGRAM_FAILED);
        return program_no_memory();
    }
    out->buffer = memory;
    return 0;
}

/* Writes a rank's share of the data, to one file after the other. */
typedef struct share_writer {
    output_file out;
    size_t file;
    uint64_t offset; /* the tensor's position in the file */
    const export_meter *meter;
} share_writer;

static int write_piece(void *ctx, uint64_t offset, const void *data, uint64_t bytes) {
    share_writer *t = ctx;
    int status = output_write(&t->out, t->offset + offset, data, bytes);
    if (status == 0) t->meter->update(t->meter->ctx, bytes);
    return status;
}

static int open_share_file(share_writer *t, const export_contents *contents, const char *dir,
                           size_t file) {
    char path[PATH_MAX + 80];
    if (t->out.fd >= 0 && t->file == file) return 0;
    int status = output_close(&t->out, 0);
    if (status) return status;
    t->file = file;
    snprintf(path, sizeof path, "%s/%s", dir, contents->files[file].name);
    return output_open(&t->out, path);
}

static uint64_t stored_bytes(const export_item *item) {
    return dcp_tensor_bytes(&item->tensor) / dcp_dtype_bytes(item->tensor.dtype) *
           dcp_dtype_bytes(item->stored);
}

int export_stream_share(const launch *job, dcp_checkpoint *ckpt, export_contents *contents,
                        const char *dir, const export_meter *meter) {
    share_writer t = {.out = {.fd = -1}, .meter = meter};
    uint64_t total = 0, at = 0;
    int status = 0;
    for (size_t i = 0; i < contents->n; i++) total += stored_bytes(&contents->items[i]);
    const uint64_t share = total / (uint64_t)job->size + 1;
    const uint64_t begin = share * (uint64_t)job->rank, end = begin + share;
    for (size_t i = 0; status == 0 && i < contents->n; i++) {
        export_item *item = &contents->items[i];
        uint64_t bytes = stored_bytes(item), start = at;
        at += bytes;
        if (!bytes || at <= begin || start >= end) continue;
        status = open_share_file(&t, contents, dir, item->file);
        t.offset = item->offset;
        if (status) break;
        if (item->source)
            status = export_stream_tensor(ckpt, item->source, item->tensor.dtype,
                                          begin > start ? begin - start : 0, end - start,
                                          &item->overflows, write_piece, &t);
        else if (begin <= start)
            status = write_piece(&t, 0, &item->count, bytes);
    }
    return output_close(&t.out, status);
}

int export_stream_note_overflows(const launch *job, const export_contents *contents) {
    enum { NAMED = 5 };
    uint64_t *counts = calloc(contents->n + 1, sizeof *counts), total = 0;
    size_t tensors = 0, named = 0;
    int status = launch_worst(job, counts ? 0 : program_no_memory());
    for (size_t i = 0; status == 0 && i < contents->n; i++)
        counts[i] = contents->items[i].overflows;
    if (status == 0) launch_sum(job, counts, (int)contents->n);
    for (size_t i = 0; status == 0 && job->rank == 0 && i < contents->n; i++) {
        total += counts[i];
        tensors += counts[i] != 0;
    }
    if (total)
        program_note("%" PRIu64
                     " elements of %zu tensors are too large for the type and became infinite:",
                     total, tensors);
    for (size_t i = 0; total && i < contents->n && named < NAMED; i++)
        if (counts[i] && ++named)
            program_note("  %s: %" PRIu64, contents->items[i].tensor.path, counts[i]);
    if (tensors > NAMED) program_note("  and %zu more tensors", tensors - NAMED);
    free(counts);
    return status;
}

/* Reserves the space, so that a full disk is noticed before any data move. */
static int reserve_bytes(int fd, const char *path, uint64_t bytes) {
    if (bytes == 0 || fallocate(fd, 0, 0, (off_t)bytes) == 0) return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
        return program_fail_errno("cannot reserve space for", path);
    return ftruncate(fd, (off_t)bytes) ? program_fail_errno("cannot write", path) : 0;
}

int export_stream_create_file(const char *path, const void *head, uint64_t head_bytes,
                              uint64_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return program_fail_errno("cannot create", path);
    int status = reserve_bytes(fd, path, bytes);
    for (uint64_t done = 0; status == 0 && done < head_bytes;) {
        ssize_t put = pwrite(fd, (const char *)head + done, head_bytes - done, (off_t)done);
        if (put >= 0)
            done += (uint64_t)put;
        else if (errno != EINTR)
            status = program_fail_errno("cannot write", path);
    }
    if (close(fd) && status == 0) status = program_fail_errno("cannot write", path);
    return status;
}
