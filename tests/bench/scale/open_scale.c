/* What opening a step of many shards takes of one rank among as many: TENSORS SHARDS RANK as
 * arguments. The rank's own file is real, as far as its tables go; what the other ranks would send
 * is made here. With --check it fails where the rank took more than 16 MiB. */
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/system.h"
#include "heap.h"
#include "reader/checkpoint.h"
#include "reader/packed.h"
#include "reader/union.h"
#include "world.h"

enum { MOST_BYTES = 16 << 20, FACTS = 13, NUMBERS = 7 };

static struct {
    int n, shards, rank, exchanges, collectives;
    dcp_tensor *tensors;
    char folder[64];
    const dcp_checkpoint *ckpt;
} o;

int __wrap_comm_agree(dcp_comm *comm, int status, dcp_error *err);
int __wrap_comm_agree_min(dcp_comm *comm, int status, uint64_t *values, size_t n, dcp_error *err);
int __wrap_comm_agree_xor(dcp_comm *comm, int status, uint64_t *words, size_t n, dcp_error *err);
int __wrap_comm_buffer_agree_exchange(dcp_comm *comm, int status, uint64_t ready,
                                      const comm_buffer *send, const uint64_t *send_bytes,
                                      comm_buffer *receive, uint64_t *receive_bytes,
                                      dcp_error *err);

/* Like the tensors of a model of experts: much the same names, ascending. */
static void make_tensors(void) {
    o.tensors = calloc((size_t)o.n, sizeof *o.tensors);
    NEED(o.tensors);
    for (int i = 0; i < o.n; i++) {
        char path[80];
        snprintf(path, sizeof path, "/model/model.layers.%03d.mlp.experts.%03d.gate_proj.weight",
                 i / 100, i % 100);
        o.tensors[i] = (dcp_tensor){strdup(path), DCP_F32, 2, {2 * (uint64_t)o.shards, 16}};
    }
}

static format_row row_of(int tensor, int shard, dcp_box *box) {
    *box = dcp_box_chunk(&o.tensors[tensor], shard, o.shards);
    return (format_row){.tensor = o.tensors[tensor],
                        .box = box,
                        .offset = USERBLOCK_BYTES * (uint64_t)(tensor + 1),
                        .bytes = dcp_box_elems(box, 2) * 4};
}

static void write_at(int fd, const void *bytes, uint64_t n, uint64_t offset) {
    NEED(pwrite(fd, bytes, n, (off_t)offset) == (ssize_t)n);
}

/* The tables of this rank's shard, in a file of holes. */
static void write_shard(const char *path) {
    size_t n = (size_t)o.n;
    format_row *rows = calloc(n, sizeof *rows);
    dcp_box *boxes = calloc(n, sizeof *boxes);
    uint64_t *blocks = calloc(n, 8);
    char meta[65536], json[200];
    NEED(rows && boxes && blocks);
    for (size_t i = 0; i < n; i++) rows[i] = row_of((int)i, o.rank, &boxes[i]);
    for (size_t i = 0; i < n; i++) blocks[i] = 0x123456789abcdef1 + i;
    uint64_t path_bytes = format_index_path_bytes(rows, n), at = USERBLOCK_BYTES * (n + 1);
    format_userblock ub = {.layout = DCP_LAYOUT_SHARDED,
                           .rows = n,
                           .row_bytes = format_index_row_bytes(path_bytes, DCP_LAYOUT_SHARDED)};
    unsigned char *index = calloc(n, ub.row_bytes), head[USERBLOCK_BYTES];
    NEED(index);
    format_index_encode(rows, n, path_bytes, DCP_LAYOUT_SHARDED, index);
    memset(meta, ' ', sizeof meta);
    snprintf(json, sizeof json,
             "{\"format\":1,\"shard\":{\"rank\":%d,\"state_id\":\"0123456789abcdef\",\"world\":%d},"
             "\"step\":1}",
             o.rank, o.shards);
    memcpy(meta, json, strlen(json));
    ub.index = (format_range){at, n * ub.row_bytes, core_crc64(index, n * ub.row_bytes)};
    ub.blocks =
        (format_range){core_round_to_pages(at + ub.index.bytes), 8 * n, core_crc64(blocks, 8 * n)};
    ub.meta = (format_range){core_round_to_pages(ub.blocks.offset + 8 * n), sizeof meta,
                             core_crc64(meta, sizeof meta)};
    ub.file_bytes = core_round_to_pages(ub.meta.offset + sizeof meta);
    format_userblock_encode(&ub, head);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    NEED(fd >= 0 && !ftruncate(fd, (off_t)ub.file_bytes));
    write_at(fd, head, sizeof head, 0);
    write_at(fd, index, ub.index.bytes, ub.index.offset);
    write_at(fd, blocks, ub.blocks.bytes, ub.blocks.offset);
    write_at(fd, meta, sizeof meta, ub.meta.offset);
    close(fd);
    free(rows), free(boxes), free(blocks), free(index);
}

int __wrap_comm_agree(dcp_comm *comm, int status, dcp_error *err) {
    (void)comm, (void)err;
    o.collectives++;
    return status;
}

/* All ranks have read the same names. */
int __wrap_comm_agree_min(dcp_comm *comm, int status, uint64_t *values, size_t n, dcp_error *err) {
    (void)comm, (void)values, (void)n, (void)err;
    o.collectives++;
    return status;
}

/* What tensors' homes tell, and rank 0. */
int __wrap_comm_agree_xor(dcp_comm *comm, int status, uint64_t *words, size_t n, dcp_error *err) {
    (void)comm, (void)err;
    NEED(!status && n >= NUMBERS * (uint64_t)o.n + READER_DIGEST_WORDS);
    o.collectives++;
    if (o.rank) reader_digest_make(o.ckpt, words + NUMBERS * o.n, NULL);
    for (int i = 0; i < o.n; i++)
        if (i % o.shards != o.rank) {
            const uint64_t told[NUMBERS] = {(uint64_t)o.shards, (uint64_t)o.shards, 2, 0, 0, 0, 1};
            memcpy(words + NUMBERS * i, told, sizeof told);
        }
    return DCP_OK;
}

/* Each rank's user block, which is like this rank's, and its rows of the tensors that are at home
 * here. */
static void add_rows(const void *facts, comm_buffer *message, uint64_t *bytes) {
    for (int shard = 0; shard < o.shards; shard++) {
        uint64_t before = message->bytes;
        memcpy(comm_buffer_append(message, 8 * FACTS), facts, 8 * FACTS);
        for (int i = o.rank; i < o.n; i += o.shards) {
            dcp_box box;
            const uint64_t crc = 0x123456789abcdef1 + (uint64_t)i;
            const format_row row = row_of(i, shard, &box);
            NEED(!reader_packed_append(message, (size_t)i, (size_t)shard, &row, "", &crc, NULL));
        }
        bytes[shard] = message->bytes - before;
    }
}

/* To tensors' homes. */
int __wrap_comm_buffer_agree_exchange(dcp_comm *comm, int status, uint64_t ready,
                                      const comm_buffer *send, const uint64_t *send_bytes,
                                      comm_buffer *receive, uint64_t *receive_bytes,
                                      dcp_error *err) {
    (void)comm, (void)send_bytes, (void)err;
    NEED(!status && !o.exchanges++);
    o.collectives += 2;
    free(malloc(ready));
    add_rows(send->data, receive, receive_bytes);
    return DCP_OK;
}

static dcp_checkpoint *make_checkpoint(dcp_comm *comm) {
    dcp_checkpoint *ckpt = calloc(1, sizeof *ckpt);
    NEED(ckpt);
    ckpt->comm = comm;
    ckpt->layout = DCP_LAYOUT_SHARDED;
    ckpt->path = strdup(o.folder);
    NEED(!reader_checkpoint_make_files(ckpt, (size_t)o.shards, NULL));
    for (int f = 0; f < o.shards; f++) {
        char path[128];
        snprintf(path, sizeof path, "%s/shard-%05d-of-%05d.h5", o.folder, f, o.shards);
        ckpt->files[f].path = strdup(path);
    }
    return ckpt;
}

static void check_rows(const dcp_checkpoint *ckpt) {
    NEED(ckpt->n_tensors == (size_t)o.n);
    for (int i = 0; i < o.n; i++) {
        const reader_tensor *t = &ckpt->tensors[i];
        NEED(!strcmp(t->tensor.path, o.tensors[i].path));
        NEED(t->n_datasets == (size_t)o.shards);
        NEED(!t->rows == (i % o.shards != o.rank));
    }
}

int main(int argc, char **argv) {
    dcp_error err = {0};
    int check = argc > 4 && !strcmp(argv[4], "--check");
    o.n = argc > 1 ? atoi(argv[1]) : 10806;
    o.shards = argc > 2 ? atoi(argv[2]) : 1024;
    o.rank = argc > 3 ? atoi(argv[3]) : 1;
    snprintf(o.folder, sizeof o.folder, "/tmp/dcp-open-XXXXXX");
    NEED(o.n > 0 && o.shards > 0 && o.rank >= 0 && o.rank < o.shards && mkdtemp(o.folder));
    make_tensors();
    dcp_comm *comm = calloc(1, sizeof *comm);
    NEED(comm);
    comm->rank = o.rank;
    comm->size = o.shards;
    heap_start();
    dcp_checkpoint *ckpt = make_checkpoint(comm);
    o.ckpt = ckpt;
    write_shard(ckpt->files[o.rank].path);
    size_t before = heap_now();
    heap_start();
    heap_add((ptrdiff_t)before);
    double start = core_clock_now();
    bool moved = false;
    int status = reader_homes_open(ckpt, DCP_OK, &moved, &err);
    if (status) fprintf(stderr, "%s\n", err.message);
    NEED(!status && !moved);
    printf(
        "%d tensors in %d shards, rank %d: peak %.1f MiB, then %.1f MiB, %.3f s, %d collectives\n",
        o.n, o.shards, o.rank, (double)heap_peak() / 1048576, (double)heap_now() / 1048576,
        core_clock_now() - start, o.collectives);
    check_rows(ckpt);
    NEED(!check || heap_peak() <= MOST_BYTES);
    unlink(ckpt->files[o.rank].path);
    dcp_checkpoint_close(ckpt);
    free(comm);
    NEED(!rmdir(o.folder));
    return 0;
}
