#include "comm/levels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifndef FEW_BYTES /* as in pairs.c */
#define FEW_BYTES 4096
#endif

/* Whether there are others on this rank's host. */
static int has_host(const comm_mpi *ctx) { return ctx->host.memory != NULL; }

static int is_first(const comm_mpi *ctx) { return !has_host(ctx) || ctx->host.rank == 0; }

static int levels_barrier(void *context) {
    comm_mpi *ctx = context;
    int failed = has_host(ctx) && comm_host_ops.barrier(ctx);
    if (!failed && is_first(ctx)) failed = comm_pairs_ops.barrier(&ctx->between);
    return failed || (has_host(ctx) && comm_host_ops.barrier(ctx));
}

/* This rank's part in what has a root, whose host it stands for in place of the first rank. */
typedef struct rooted {
    comm_mpi *ctx;
    int root, group; /* and the root's group */
    int number;      /* on this rank's host, of the rank that stands for it */
    int stands;      /* this one does */
} rooted;

static rooted begin_rooted(comm_mpi *ctx, int root) {
    rooted r = {.ctx = ctx, .root = root, .group = ctx->groups->of[root]};
    const int is_here = r.group == ctx->groups->own;
    while (is_here && has_host(ctx) && ctx->host.ranks[r.number] != root) r.number++;
    r.stands = !has_host(ctx) || ctx->host.rank == r.number;
    ctx->first[r.group] = root;
    return r;
}

static void end_rooted(const rooted *r) {
    r->ctx->first[r->group] = comm_groups_rank(r->ctx->groups, r->group, 0);
}

static int levels_broadcast(void *context, void *buf, uint64_t bytes, int root) {
    comm_mpi *ctx = context;
    const rooted r = begin_rooted(ctx, root);
    int failed = r.stands && comm_pairs_ops.broadcast(&ctx->between, buf, bytes, r.group);
    if (!failed && has_host(ctx)) failed = comm_host_ops.broadcast(ctx, buf, bytes, r.number);
    end_rooted(&r);
    return failed;
}

static int levels_allreduce(void *context, uint64_t *buf, uint64_t count, dcp_reduce op) {
    comm_mpi *ctx = context;
    int failed = has_host(ctx) && comm_host_ops.allreduce(ctx, buf, count, op);
    if (!failed && is_first(ctx)) failed = comm_pairs_ops.allreduce(&ctx->between, buf, count, op);
    if (!failed && has_host(ctx))
        failed = comm_host_ops.broadcast(ctx, buf, count * sizeof *buf, 0);
    return failed;
}

/* From blocks of `block` bytes, one a group, to all ranks' places. */
static void place_blocks(const comm_groups *groups, const unsigned char *blocks, uint64_t block,
                         uint64_t bytes, unsigned char *recv) {
    for (int g = 0; g < groups->n; g++)
        for (int i = 0; i < comm_groups_size(groups, g); i++)
            memcpy(recv + (uint64_t)comm_groups_rank(groups, g, i) * bytes,
                   blocks + (uint64_t)g * block + (uint64_t)i * bytes, bytes);
}

/* Blocks are as long as that of the largest host, so that all are. */
static int gather_blocks(const rooted *r, const void *send, uint64_t bytes, unsigned char *recv) {
    comm_mpi *ctx = r->ctx;
    const comm_groups *groups = ctx->groups;
    const uint64_t block = (uint64_t)comm_groups_largest(groups) * bytes;
    const int is_root = ctx->pairs.rank == r->root;
    unsigned char *own = r->stands ? calloc(1, block) : NULL;
    unsigned char *all = is_root ? malloc((uint64_t)groups->n * block) : NULL;
    int failed = r->stands && (!own || (is_root && !all));
    if (failed) comm_batch_break(&ctx->pairs, COMM_FAILED, ENOMEM, ctx->pairs.rank);
    if (!failed && has_host(ctx)) failed = comm_host_ops.gather(ctx, send, bytes, own, r->number);
    if (!failed && !has_host(ctx)) memcpy(own, send, bytes);
    if (!failed && r->stands)
        failed = comm_pairs_ops.gather(&ctx->between, own, block, all, r->group);
    if (!failed && is_root) place_blocks(groups, all, block, bytes, recv);
    free(own);
    free(all);
    return failed;
}

static int levels_gather(void *context, const void *send, uint64_t bytes, void *recv, int root) {
    comm_mpi *ctx = context;
    if (bytes > FEW_BYTES) return comm_pairs_ops.gather(ctx, send, bytes, recv, root);
    const rooted r = begin_rooted(ctx, root);
    const int failed = gather_blocks(&r, send, bytes, recv);
    end_rooted(&r);
    return failed;
}

static int levels_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                           const uint64_t *recv_bytes) {
    return comm_pairs_ops.alltoall(ctx, send, send_bytes, recv, recv_bytes);
}

const dcp_comm_ops comm_levels_ops = {
    .size = sizeof comm_levels_ops,
    .broadcast = levels_broadcast,
    .allreduce = levels_allreduce,
    .gather = levels_gather,
    .alltoall = levels_alltoall,
    .barrier = levels_barrier,
};

int comm_levels_make(comm_mpi *ctx, const comm_groups *groups) {
    int *first = malloc((size_t)groups->n * sizeof *first);
    if (!first) return -1;
    for (int i = 0; i < groups->n; i++) first[i] = comm_groups_rank(groups, i, 0);
    ctx->groups = groups;
    ctx->first = first;
    ctx->between = ctx->pairs;
    ctx->between.whole = &ctx->pairs;
    ctx->between.ranks = first;
    ctx->between.rank = groups->own;
    ctx->between.size = groups->n;
    return 0;
}
