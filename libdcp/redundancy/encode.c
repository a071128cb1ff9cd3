/* Space for the whole file is reserved first, so a full disk is noticed before any data is
 * moved. */
#include "redundancy/encode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "format/index.h"
#include "io/file.h"
#include "io/publish.h"

static char *join_path(const char *folder, const char *prefix, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s%s", folder, prefix, name) < 0 ? NULL : path;
}

int redundancy_output_begin(redundancy_output *o, const char *folder, const char *name,
                            uint64_t start, uint64_t bytes, uint64_t block_bytes, dcp_error *err) {
    *o = (redundancy_output){
        .file = {.fd = -1, .start = start, .bytes = bytes, .block_bytes = block_bytes}};
    uint64_t blocks = (bytes + block_bytes - 1) / block_bytes + 1;
    int status;
    o->path = join_path(folder, "", name);
    o->tmp = join_path(folder, ".tmp-", name);
    o->file.raws = calloc(blocks, sizeof *o->file.raws);
    if (!o->path || !o->tmp || !o->file.raws) {
        status = core_fail_memory(err, blocks * sizeof *o->file.raws);
        goto free_output;
    }
    o->file.path = o->tmp;
    if (unlink(o->tmp) && errno != ENOENT) {
        status = core_fail_errno(err, "cannot remove", o->tmp);
        goto free_output;
    }
    status = io_create(o->tmp, start + bytes, err);
    if (!status) {
        o->file.fd = open(o->tmp, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (o->file.fd < 0) status = core_fail_errno(err, "cannot open", o->tmp);
    }
    if (status) unlink(o->tmp);
free_output:
    if (status) redundancy_output_end(o);
    return status;
}

int redundancy_output_header(const redundancy_output *o, parity_header *h, dcp_error *err) {
    uint64_t bytes = o->file.start;
    unsigned char *head = calloc(1, bytes);
    if (!head) return core_fail_memory(err, bytes);
    unsigned char *table = head + PAGE_BYTES;
    for (uint64_t b = 0, left = o->file.bytes; left; b++) {
        uint64_t part = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        core_put_u64(table + b * 8, core_crc64_finish(o->file.raws[b], part));
        left -= part;
    }
    h->table_crc = core_crc64(table, bytes - PAGE_BYTES);
    redundancy_parity_header_encode(h, head);
    int status = io_write_plain(o->file.fd, head, bytes, 0, o->tmp, err);
    free(head);
    return status;
}

int redundancy_output_publish(redundancy_output *o, dcp_error *err) {
    const int failed = io_publish_file(o->file.fd, o->tmp, o->path);
    int status = DCP_OK;
    if (failed < 0)
        status = core_fail_errno(err, "cannot finish", o->path);
    else if (failed)
        status = core_fail_errno(err,
                                 "it is complete, but may disappear after a loss of "
                                 "power: cannot sync the folder of",
                                 o->path);
    if (failed < 0) unlink(o->tmp);
    close(o->file.fd);
    o->file.fd = -1;
    return status;
}

void redundancy_output_end(redundancy_output *o) {
    if (o->file.fd >= 0 && o->tmp) {
        close(o->file.fd);
        unlink(o->tmp);
    }
    free(o->file.raws);
    free(o->tmp);
    free(o->path);
    *o = (redundancy_output){.file = {.fd = -1}};
}

/* Writing the redundancy files of a step. Every member's file is read once, one slice at a time,
 * and each slice is sent to the ranks that compute strips from it. The checksums of a group's files
 * are known only after that, so the header is written last. */

typedef struct encoder {
    dcp_comm *comm;
    const redundancy_groups *groups;
    int group;
    parity_header header;
    char *own_path;
    strip_file own;   /* this rank's shard */
    uint64_t own_raw; /* its checksum, in raw form */
    redundancy_output out;
    stripe *stripes;
} encoder;

static int rank_of(const encoder *e, int member) {
    return e->groups->order[member * e->groups->n + e->group];
}

/* Sends this rank's value to all members of its group, and receives the value of member m in
 * values[m]. */
static int share_number(const encoder *e, uint64_t value, uint64_t *values, dcp_error *err) {
    int n = e->comm->size, members = e->header.group.members;
    uint64_t *bytes = calloc((size_t)n, sizeof *bytes), same[REDUNDANCY_MAX_MEMBERS];
    uint64_t got[REDUNDANCY_MAX_MEMBERS];
    int status = comm_agree(e->comm, bytes ? DCP_OK : core_fail_memory(err, (uint64_t)n * 8), err);
    if (status) goto free_bytes;
    for (int m = 0; m < members; m++) {
        bytes[rank_of(e, m)] = sizeof *same;
        same[m] = value;
    }
    status = comm_alltoall(e->comm, same, bytes, got, bytes, err);
    for (int m = 0; m < members && !status; m++) {
        int before = 0; /* messages are in rank order */
        for (int other = 0; other < members; other++) before += rank_of(e, other) < rank_of(e, m);
        values[m] = got[before];
    }
free_bytes:
    free(bytes);
    return status;
}

static int open_shard(encoder *e, const char *folder, dcp_error *err) {
    char name[64];
    redundancy_parity_shard_name(name, (uint64_t)e->comm->rank, e->comm->size);
    if (asprintf(&e->own_path, "%s/%s", folder, name) < 0) {
        e->own_path = NULL;
        return core_fail_memory(err, strlen(folder) + sizeof name);
    }
    e->own = (strip_file){.path = e->own_path, .raws = &e->own_raw, .block_bytes = ONE_BLOCK};
    e->own.fd = -1;
    return io_open_regular(e->own_path, O_RDONLY, &e->own.fd, &e->own.bytes, err);
}

static void begin_header(encoder *e, uint64_t step) {
    parity_header *h = &e->header;
    *h = (parity_header){.step = step, .world = e->comm->size};
    e->group = redundancy_group_of(e->groups, e->comm->rank, &h->member);
    h->group = (code_group){e->groups->spec.kind, redundancy_group_members(e->groups, e->group),
                            e->groups->spec.lost};
    for (int m = 0; m < h->group.members; m++) h->members[m].number = (uint64_t)rank_of(e, m);
}

static strip strip_of_row(encoder *e, const code_strip *at, uint64_t bytes) {
    strip s = {rank_of(e, at->member), NULL, (uint64_t)at->index * bytes};
    if (s.rank == e->comm->rank) s.file = at->redundant ? &e->out.file : &e->own;
    return s;
}

/* Describes a stripe: data strips are inputs, redundant strips are outputs. */
static int fill_stripe(encoder *e, int number, dcp_error *err) {
    const code_group *g = &e->header.group;
    code_strip rows[REDUNDANCY_MAX_MEMBERS];
    int data[REDUNDANCY_MAX_MEMBERS], n = redundancy_code_data_strips(g);
    stripe *s = &e->stripes[number];
    if (redundancy_stripe_allocate(s, n, redundancy_code_strips(g) - n))
        return core_fail_memory(err, sizeof *s);
    s->bytes = redundancy_parity_strip_bytes(&e->header, number);
    redundancy_code_stripe(g, number, rows);
    for (int row = 0; row < n; row++) {
        data[row] = row;
        s->in[row] = strip_of_row(e, &rows[row], s->bytes);
    }
    for (int o = 0; o < s->n_out; o++) {
        s->out[o] = strip_of_row(e, &rows[n + o], s->bytes);
        if (redundancy_code_solve(g, data, n + o, s->coeffs + o * n))
            return core_fail_memory(err, (uint64_t)n * (uint64_t)n);
    }
    return DCP_OK;
}

static int begin_file(encoder *e, const char *folder, dcp_error *err) {
    const parity_header *h = &e->header;
    char name[64];
    redundancy_parity_file_name(name, h->group.kind, (uint64_t)e->comm->rank, h->world);
    e->stripes = calloc((size_t)h->group.members, sizeof *e->stripes);
    if (!e->stripes) return core_fail_memory(err, (uint64_t)h->group.members * sizeof *e->stripes);
    int status = redundancy_output_begin(
        &e->out, folder, name, redundancy_parity_payload_start(h, h->member),
        redundancy_parity_payload_bytes(h, h->member), BLOCK_BYTES, err);
    for (int i = 0; i < h->group.members && !status; i++) status = fill_stripe(e, i, err);
    return status;
}

/* Exchanges the lengths of the files within each group, and reserves the space for this rank's
 * file. */
static int begin_encoding(encoder *e, const char *folder, dcp_error *err) {
    uint64_t lengths[REDUNDANCY_MAX_MEMBERS];
    int status = comm_agree(e->comm, open_shard(e, folder, err), err);
    if (!status) status = share_number(e, e->own.bytes, lengths, err);
    if (status) return status;
    for (int m = 0; m < e->header.group.members; m++) e->header.members[m].bytes = lengths[m];
    return comm_agree(e->comm, begin_file(e, folder, err), err);
}

static int finish_encoding(encoder *e, dcp_error *err) {
    parity_header *h = &e->header;
    uint64_t crcs[REDUNDANCY_MAX_MEMBERS];
    int status = share_number(e, core_crc64_finish(e->own_raw, e->own.bytes), crcs, err);
    if (status) return status;
    for (int m = 0; m < h->group.members; m++) h->members[m].crc = crcs[m];
    h->set = redundancy_parity_set_part(&h->members[h->member]);
    status = comm_allreduce(e->comm, &h->set, 1, DCP_REDUCE_XOR, err);
    if (status) return status;
    status = redundancy_output_header(&e->out, h, err);
    if (!status) status = redundancy_output_publish(&e->out, err);
    int agreed = comm_agree(e->comm, status, err);
    if (agreed) unlink(e->out.path);
    return agreed;
}

int redundancy_encode(dcp_comm *comm, const redundancy_groups *groups, const char *folder,
                      uint64_t step, comm_stop *stop, dcp_error *err) {
    if (groups->spec.kind == REDUNDANCY_NONE) return DCP_OK;
    encoder e = {.comm = comm, .groups = groups, .own.fd = -1, .out.file.fd = -1};
    int status = DCP_OK;
    if (groups->world != comm->size)
        status = core_fail(err, DCP_ERR_ARG,
                           "redundancy: the groups are for %d ranks, but the save has %d",
                           groups->world, comm->size);
    status = comm_agree(comm, status, err);
    if (status) return status;
    begin_header(&e, step);
    status = begin_encoding(&e, folder, err);
    if (!status)
        status =
            redundancy_stripes_move(comm, e.stripes, (size_t)e.header.group.members, stop, err);
    if (!status) status = finish_encoding(&e, err);
    redundancy_output_end(&e.out);
    redundancy_stripes_free(e.stripes, (size_t)e.header.group.members);
    if (e.own.fd >= 0) close(e.own.fd);
    free(e.own_path);
    return status;
}
