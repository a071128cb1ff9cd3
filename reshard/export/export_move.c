/* The data's way out, in bounded memory.
 *
 * The bytes of all tensors, as stored and in the plan's order, are cut into one stretch a rank; a
 * piece goes with its first byte. Each rank writes its pieces to their places, which it shares with
 * nobody. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "export/export.h"
#include "export/output.h"
#include "programs/program.h"

#define PIECE_BYTES (16u << 20) /* several of the checkpoint's 4 MiB blocks */

typedef struct stream {
    dcp_checkpoint *ckpt;
    const dcp_tensor *stored;
    dcp_dtype as;
    uint64_t begin, end; /* of the stored bytes */
    void *in, *out;      /* equal where nothing is converted */
    uint64_t *overflows; /* may be NULL */
} stream;

/* Of what a cast makes: F32, F16 or BF16. */
static int is_infinite(dcp_dtype dtype, const void *elements, uint64_t i) {
    if (dtype == DCP_F32) return (((const uint32_t *)elements)[i] & 0x7fffffff) == 0x7f800000;
    return (((const uint16_t *)elements)[i] & 0x7fff) == (dtype == DCP_F16 ? 0x7c00 : 0x7f80);
}

/* Of n elements that were converted: what is infinite now and was finite before. */
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
    if (launch_is_stopped())
        return program_fail(PROGRAM_FAILED, "stopped by a signal: nothing is left behind");
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

int export_stream(dcp_checkpoint *ckpt, const char *source, dcp_dtype as, uint64_t begin,
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
        status = program_fail(PROGRAM_FAILED, "out of memory");
    if (s.out != s.in) free(s.out);
    free(s.in);
    return status;
}

/* The file that is being written. */
typedef struct target {
    output out;
    size_t file;
    uint64_t offset; /* of the tensor in it */
    const export_meter *meter;
} target;

static int write_piece(void *ctx, uint64_t offset, const void *data, uint64_t bytes) {
    target *t = ctx;
    int status = output_write(&t->out, t->offset + offset, data, bytes);
    if (status == 0) t->meter->update(t->meter->ctx, bytes);
    return status;
}

static int open_target(target *t, const export_plan *plan, const char *dir, size_t file) {
    char path[PATH_MAX + 80];
    if (t->out.fd >= 0 && t->file == file) return 0;
    int status = output_close(&t->out, 0);
    if (status) return status;
    t->file = file;
    snprintf(path, sizeof path, "%s/%s", dir, plan->files[file].name);
    return output_open(&t->out, path);
}

static uint64_t stored_bytes(const export_item *item) {
    return dcp_tensor_bytes(&item->tensor) / dcp_dtype_bytes(item->tensor.dtype) *
           dcp_dtype_bytes(item->stored);
}

int export_move(const launch *job, dcp_checkpoint *ckpt, export_plan *plan, const char *dir,
                const export_meter *meter) {
    target t = {.out = {.fd = -1}, .meter = meter};
    uint64_t total = 0, at = 0;
    int status = 0;
    for (size_t i = 0; i < plan->n; i++) total += stored_bytes(&plan->items[i]);
    const uint64_t share = total / (uint64_t)job->size + 1;
    const uint64_t begin = share * (uint64_t)job->rank, end = begin + share;
    for (size_t i = 0; status == 0 && i < plan->n; i++) {
        export_item *item = &plan->items[i];
        uint64_t bytes = stored_bytes(item), start = at;
        at += bytes;
        if (!bytes || at <= begin || start >= end) continue;
        status = open_target(&t, plan, dir, item->file);
        t.offset = item->offset;
        if (status == 0)
            status = export_stream(ckpt, item->source, item->tensor.dtype,
                                   begin > start ? begin - start : 0, end - start, &item->overflows,
                                   write_piece, &t);
    }
    return output_close(&t.out, status);
}

int export_tell_overflows(const launch *job, const export_plan *plan) {
    enum { NAMED = 5 };
    uint64_t *counts = calloc(plan->n + 1, sizeof *counts), total = 0;
    size_t tensors = 0, named = 0;
    int status = launch_worst(job, counts ? 0 : program_fail(PROGRAM_FAILED, "out of memory"));
    for (size_t i = 0; status == 0 && i < plan->n; i++) counts[i] = plan->items[i].overflows;
    if (status == 0) launch_sum(job, counts, (int)plan->n);
    for (size_t i = 0; status == 0 && job->rank == 0 && i < plan->n; i++) {
        total += counts[i];
        tensors += counts[i] != 0;
    }
    if (total)
        program_note("%" PRIu64 " elements of %zu tensors are too large for the type and became "
                     "infinite:",
                     total, tensors);
    for (size_t i = 0; total && i < plan->n && named < NAMED; i++)
        if (counts[i] && ++named)
            program_note("  %s: %" PRIu64, plan->items[i].tensor.path, counts[i]);
    if (tensors > NAMED) program_note("  and %zu more tensors", tensors - NAMED);
    free(counts);
    return status;
}

/* Reserving the room shows a full disk before any data moves. */
static int reserve(int fd, const char *path, uint64_t bytes) {
    if (bytes == 0 || fallocate(fd, 0, 0, (off_t)bytes) == 0) return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
        return program_fail_errno("cannot reserve space for", path);
    return ftruncate(fd, (off_t)bytes) ? program_fail_errno("cannot write", path) : 0;
}

int export_reserve(const char *path, const void *head, uint64_t head_bytes, uint64_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return program_fail_errno("cannot create", path);
    int status = reserve(fd, path, bytes);
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
