/* Strips move one slice at a time. The bytes of a slice are read by the ranks that have them, sent
 * to each rank that needs them, combined there and written. Sender and receiver both know the size
 * of each message; its strips are in the order of the list. A slice is as large as the memory of
 * the busiest rank allows. */
#include "redundancy/stripes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "io/file.h"
#include "redundancy/groups.h"

#define MEMORY_BYTES ((uint64_t)16 << 20)

typedef struct strips_move {
    dcp_comm *comm;
    const stripe *list;
    size_t n;
    comm_stop *stop;
    uint64_t slice, start, longest; /* start: offset of the slice in every strip */
    unsigned char *send, *receive, *combined;
    /* for each rank: bytes of its message in this slice, and the message's place in the buffer */
    uint64_t *send_bytes, *receive_bytes, *send_at, *receive_at;
} strips_move;

/* Adds bytes [offset, offset + bytes) of the file to its checksums. */
static void sum_strip(const strip_file *file, const unsigned char *data, uint64_t offset,
                      uint64_t bytes) {
    for (uint64_t part; file->raws && bytes; data += part, offset += part, bytes -= part) {
        uint64_t block = offset / file->block_bytes;
        uint64_t end = core_min_u64((block + 1) * file->block_bytes, file->bytes);
        part = core_min_u64(bytes, end - offset);
        file->raws[block] ^= core_crc64_shift(core_crc64_raw(0, data, part), end - offset - part);
    }
}

int redundancy_stripe_allocate(stripe *s, int n_in, int n_out) {
    *s = (stripe){.n_in = n_in, .n_out = n_out};
    s->in = calloc((size_t)n_in, sizeof *s->in);
    s->out = calloc((size_t)n_out, sizeof *s->out);
    s->coeffs = calloc((size_t)n_in * (size_t)n_out, 1);
    return s->in && s->out && s->coeffs ? 0 : -1;
}

void redundancy_stripes_free(stripe *list, size_t n) {
    for (size_t i = 0; list && i < n; i++) {
        free(list[i].in);
        free(list[i].out);
        free(list[i].coeffs);
    }
    free(list);
}

/* Returns true if output `o` is the first one of its rank: a rank that combines several strips of a
 * stripe receives the inputs only once. */
static bool is_first_of_rank(const stripe *s, int o) {
    for (int i = 0; i < o; i++)
        if (s->out[i].rank == s->out[o].rank) return false;
    return true;
}

static int outs_of(const stripe *s, int rank) {
    int n = 0;
    for (int o = 0; o < s->n_out; o++) n += s->out[o].rank == rank;
    return n;
}

/* Adds `bytes` to the messages for each strip of the stripe that this rank sends, and for each that
 * it receives. */
static void add_messages(const strips_move *m, const stripe *s, uint64_t bytes) {
    int me = m->comm->rank, needed = outs_of(s, me);
    for (int i = 0; i < s->n_in; i++) {
        if (needed) m->receive_bytes[s->in[i].rank] += bytes;
        for (int o = 0; o < s->n_out && s->in[i].rank == me; o++)
            if (is_first_of_rank(s, o)) m->send_bytes[s->out[o].rank] += bytes;
    }
}

/* Returns how many bytes of each of the stripe's strips are in this slice. */
static uint64_t part_of(const strips_move *m, const stripe *s) {
    return s->bytes > m->start ? core_min_u64(m->slice, s->bytes - m->start) : 0;
}

static void plan_messages(strips_move *m) {
    size_t size = (size_t)m->comm->size;
    memset(m->send_bytes, 0, 2 * size * sizeof *m->send_bytes);
    for (size_t i = 0; i < m->n; i++) add_messages(m, &m->list[i], part_of(m, &m->list[i]));
    m->send_at[0] = m->receive_at[0] = 0;
    for (size_t r = 1; r < size; r++) {
        m->send_at[r] = m->send_at[r - 1] + m->send_bytes[r - 1];
        m->receive_at[r] = m->receive_at[r - 1] + m->receive_bytes[r - 1];
    }
}

/* Reads the slice of a strip; bytes beyond the end of its file are zeros. */
static int read_strip(const strips_move *m, const strip *from, unsigned char *to, uint64_t bytes,
                      dcp_error *err) {
    const strip_file *file = from->file;
    uint64_t offset = from->offset + m->start;
    uint64_t have = offset < file->bytes ? core_min_u64(bytes, file->bytes - offset) : 0;
    int status = io_read_plain(file->fd, to, have, file->start + offset, file->path, err);
    if (status) return status;
    memset(to + have, 0, bytes - have);
    sum_strip(file, to, offset, have);
    return DCP_OK;
}

static int read_stripe(strips_move *m, const stripe *s, dcp_error *err) {
    uint64_t bytes = part_of(m, s);
    for (int i = 0; i < s->n_in && bytes; i++) {
        unsigned char *first = NULL;
        if (s->in[i].rank != m->comm->rank) continue;
        for (int o = 0; o < s->n_out; o++) {
            if (!is_first_of_rank(s, o)) continue;
            unsigned char *to = m->send + m->send_at[s->out[o].rank];
            m->send_at[s->out[o].rank] += bytes;
            if (first) {
                memcpy(to, first, bytes);
                continue;
            }
            int status = read_strip(m, &s->in[i], to, bytes, err);
            if (status) return status;
            first = to;
        }
    }
    return DCP_OK;
}

static int write_strip(const strips_move *m, const strip *to, const unsigned char *data,
                       uint64_t bytes, dcp_error *err) {
    const strip_file *file = to->file;
    uint64_t offset = to->offset + m->start;
    uint64_t left = offset < file->bytes ? core_min_u64(bytes, file->bytes - offset) : 0;
    sum_strip(file, data, offset, left);
    return io_write_plain(file->fd, data, left, file->start + offset, file->path, err);
}

/* Computes and writes the outputs of a stripe that are on this rank. */
static int combine_stripe(strips_move *m, const stripe *s, dcp_error *err) {
    unsigned char *in[REDUNDANCY_MAX_MEMBERS];
    uint64_t bytes = part_of(m, s);
    int me = m->comm->rank, status = DCP_OK;
    if (!bytes || !outs_of(s, me)) return DCP_OK;
    for (int i = 0; i < s->n_in; i++) {
        in[i] = m->receive + m->receive_at[s->in[i].rank];
        m->receive_at[s->in[i].rank] += bytes;
    }
    for (int o = 0; o < s->n_out && !status; o++) {
        if (s->out[o].rank != me) continue;
        redundancy_code_combine(bytes, s->n_in, 1, s->coeffs + o * s->n_in, in, &m->combined);
        status = write_strip(m, &s->out[o], m->combined, bytes, err);
    }
    return status;
}

static int move_strips(strips_move *m, int status, dcp_error *err) {
    plan_messages(m);
    if (!status) status = comm_stop_poll(m->stop, err);
    for (size_t i = 0; i < m->n && !status; i++) status = read_stripe(m, &m->list[i], err);
    status = comm_agree(m->comm, status, err);
    if (!status)
        status = comm_alltoall(m->comm, m->send, m->send_bytes, m->receive, m->receive_bytes, err);
    return status;
}

static int move_all_strips(strips_move *m, dcp_error *err) {
    int status = DCP_OK;
    for (m->start = 0; m->start < m->longest; m->start += m->slice) {
        status = move_strips(m, status, err);
        if (status) return status; /* all ranks agree on it */
        for (size_t i = 0; i < m->n && !status; i++) status = combine_stripe(m, &m->list[i], err);
    }
    return comm_agree(m->comm, status, err);
}

/* Chooses the size of a slice: if possible, the slices that the busiest rank sends and receives at
 * once fit into MEMORY_BYTES. Sets *sent and *received to the numbers of slices that this rank
 * sends and receives at once. */
static int choose_slice(strips_move *m, uint64_t *sent, uint64_t *received, dcp_error *err) {
    uint64_t most[2] = {0, 0};
    *sent = *received = 0;
    memset(m->send_bytes, 0, 2 * (size_t)m->comm->size * sizeof *m->send_bytes);
    for (size_t i = 0; i < m->n; i++) {
        add_messages(m, &m->list[i], 1);
        if (m->list[i].bytes > most[1]) most[1] = m->list[i].bytes;
    }
    for (int r = 0; r < m->comm->size; r++) {
        *sent += m->send_bytes[r];
        *received += m->receive_bytes[r];
    }
    most[0] = *sent + *received + 1;
    int status = comm_allreduce(m->comm, most, 2, DCP_REDUCE_MAX, err);
    if (status) return status;
    m->longest = most[1];
    m->slice = MEMORY_BYTES / most[0] / PAGE_BYTES * PAGE_BYTES;
    if (!m->slice) m->slice = PAGE_BYTES;
    m->slice = core_min_u64(m->slice, m->longest);
    return DCP_OK;
}

int redundancy_stripes_move(dcp_comm *comm, const stripe *list, size_t n, comm_stop *stop,
                            dcp_error *err) {
    size_t size = (size_t)comm->size;
    uint64_t sent = 0, received = 0, *arrays = core_array(4 * size, sizeof *arrays);
    strips_move m = {.comm = comm, .list = list, .n = n, .stop = stop};
    int status = comm_agree(comm, arrays ? DCP_OK : core_fail_memory(err, size * 32), err);
    if (status) goto free_arrays;
    m.send_bytes = arrays;
    m.receive_bytes = arrays + size;
    m.send_at = arrays + 2 * size;
    m.receive_at = arrays + 3 * size;
    status = choose_slice(&m, &sent, &received, err);
    if (status) goto free_arrays;
    m.send = malloc((sent + received + 1) * m.slice + 1);
    if (m.send) {
        m.receive = m.send + sent * m.slice;
        m.combined = m.receive + received * m.slice;
    } else {
        status = core_fail_memory(err, (sent + received + 1) * m.slice);
    }
    status = comm_agree(comm, status, err);
    if (!status) status = move_all_strips(&m, err);
    free(m.send);
free_arrays:
    free(arrays);
    return status;
}
