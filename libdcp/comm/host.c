/* The first rank makes a file that exists only in memory. The others open it through /proc. The
 * kernel permits that only to processes that could trace the first rank's process: those of the
 * same user and the same PID namespace. In another container the same path may lead to another
 * file, so device and inode are compared. */
#include "comm/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/batch.h"
#include "core/bytes.h"
#include "core/system.h"
#include "dcp/mpi.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

static void identify(int fd, comm_memory_file *file) {
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return;
    file->device = st.st_dev;
    file->inode = st.st_ino;
}

/* Returns true if vm.overcommit_memory is 2: the kernel promises no more memory than it has. */
static bool memory_is_counted(void) {
    char mode = 0;
    const int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, &mode, 1);
    close(fd);
    return n == 1 && mode == '2';
}

/* Normally a page is allocated when it is first touched, near the processor that touches it. If
 * vm.overcommit_memory is 2, that allocation may fail and end the process with SIGBUS, so all pages
 * are allocated now. */
static int set_size(int fd, size_t bytes) {
    if (core_file_limit_check(bytes)) return -1;
    return memory_is_counted() ? fallocate(fd, 0, 0, (off_t)bytes) : ftruncate(fd, (off_t)bytes);
}

int comm_memory_file_make(size_t bytes, comm_memory_file *file) {
    int fd = memfd_create("dcp", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (fd < 0) fd = memfd_create("dcp", MFD_CLOEXEC); /* kernels before 6.3 */
    if (fd >= 0 && set_size(fd, bytes) != 0) {
        close(fd);
        return -1;
    }
    file->pid = getpid();
    file->fd = fd;
    identify(fd, file);
    return fd;
}

int comm_memory_file_open(const comm_memory_file *file) {
    char path[64];
    comm_memory_file found = {0};
    if (file->fd < 0) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)file->pid, (int)file->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    identify(fd, &found);
    if (found.device == file->device && found.inode == file->inode) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* Collective: *one becomes 1 if all ranks are on the host of the first rank, else 0. */
static int is_one_host(dcp_comm *comm, uint64_t *one, dcp_error *err) {
    comm_location first = comm->location;
    int status = comm_broadcast(comm, &first, sizeof first, 0, err);
    *one = !status && comm_location_is_same(&comm->location, &first);
    return status ? status : comm_allreduce(comm, one, 1, DCP_REDUCE_MIN, err);
}

void *comm_memory_file_map(int fd, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int comm_host_memory_create(dcp_comm *comm, size_t bytes, void **out, dcp_error *err) {
    comm_memory_file file = {.fd = -1};
    uint64_t ok;
    int fd = -1, status = is_one_host(comm, &ok, err);
    if (status || !ok) return status;
    if (comm->rank == 0) fd = comm_memory_file_make(bytes, &file);
    status = comm_broadcast(comm, &file, sizeof file, 0, err);
    if (!status && comm->rank > 0) fd = comm_memory_file_open(&file);
    void *memory = !status && fd >= 0 ? comm_memory_file_map(fd, bytes) : NULL;
    ok = memory != NULL;
    if (!status) status = comm_allreduce(comm, &ok, 1, DCP_REDUCE_MIN, err); /* 1: all have it */
    if (fd >= 0) close(fd);
    if (!status && ok)
        *out = memory;
    else
        dcp_host_memory_free(memory, bytes);
    return status;
}

void dcp_host_memory_free(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

/* Every collective is a sequence of rounds. In a round each rank fills its slot, publishes it,
 * waits for all others, and reads their slots. Each rank has two slots, which it uses in turn.
 * Before it fills a slot again, it has seen all others publish the round in between, so they have
 * finished reading the slot. */

#define SPINS 100      /* polls before a waiting rank sleeps: a few microseconds */
#define NAP_NS 1000000 /* the first nap; after it, and each later one, push_mpi is called */
#define LONG_NAP_NS 32000000
#define LAST_NS 100000000 /* by then, everything that a rank sent before it ended has arrived */

/* Lets MPI make progress: the awaited rank may itself wait for a message from this rank that MPI
 * has yet to send. */
static void push_mpi(comm_pairs *pairs) {
    int flag;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, pairs->comm, &flag, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) comm_batch_break(pairs, COMM_FAILED, code, pairs->rank);
}

/* Breaks the communicator's watch (process.h) because of the rank, unless the rank has published
 * this round. What it published before it ended still counts. */
static void judge_rank(comm_mpi *ctx, int rank, comm_cause why) {
    if (!core_futex_reached(ctx->host.rounds[rank], ctx->host.round))
        comm_batch_break(&ctx->pairs, why, 0, ctx->host.ranks[rank]);
}

/* The state of one wait. */
typedef struct host_wait {
    comm_patience patience;
    comm_search search;
    int64_t found; /* when rank number `gone` was found dead; 0: none was found */
    int gone;
} host_wait;

/* Checks all ranks of the host, since a rank other than the awaited one may have ended, and will
 * then never arrive. If the communicator has several hosts, a rank of this host may have ended only
 * because a rank of another host had ended before, and may have reported that other rank. So the
 * rank of this host is named as the failed one only after LAST_NS: by then any such report has
 * arrived, and has broken the watch first. */
static void look_at_ranks(comm_mpi *ctx, host_wait *w) {
    for (int r = 0, which; r < ctx->host.size && !w->found; r++) {
        if (core_futex_reached(ctx->host.rounds[r], ctx->host.round) ||
            !comm_watch_has_ended(ctx->pairs.watch, ctx->host.ranks[r], &which))
            continue;
        w->found = comm_watch_clock();
        w->gone = r;
    }
}

/* `rank` is the rank that this one waits for. */
static void look_around_host(comm_mpi *ctx, host_wait *w, int rank) {
    const bool is_all = ctx->host.failure != NULL;
    const comm_waiting state = comm_watch_wait(ctx->pairs.watch, &w->patience);
    if (state == COMM_BROKEN) return;
    if (state == COMM_CHECK) look_at_ranks(ctx, w);
    if (w->found && (is_all || comm_watch_clock() - w->found > LAST_NS)) {
        judge_rank(ctx, w->gone, COMM_HAS_ENDED);
        w->found = 0;
    }
    if (!is_all) comm_batch_answer(&ctx->pairs, ctx->host.ranks[rank]);
    if (state == COMM_TIMED_OUT && is_all) judge_rank(ctx, rank, COMM_IS_LATE);
    if (state == COMM_TIMED_OUT && !is_all && !w->found)
        comm_batch_find_late(&ctx->pairs, &w->search, ctx->host.ranks[rank]);
}

/* Waits until the rank has published this round. Returns -1 if the communicator is broken. If
 * another thread of this rank computes, this thread sleeps longer and longer, since the calls of
 * the other thread let MPI make progress. This thread still wakes now and then, because the other
 * thread may be waiting for it, and because it has to check whether the awaited rank still runs. */
static int wait_for_rank(comm_mpi *ctx, int rank) {
    const comm_host *host = &ctx->host;
    const bool yields = ctx->pairs.yields;
    core_futex *round = host->rounds[rank];
    host_wait wait = {0};
    long nap = NAP_NS;
    for (int i = 0; i < (yields ? 1 : SPINS); i++)
        if (core_futex_reached(round, host->round)) return 0;
    while (!core_futex_reached(round, host->round)) {
        if (!core_futex_sleep(round, host->round, nap)) continue;
        push_mpi(&ctx->pairs);
        look_around_host(ctx, &wait, rank);
        if (comm_batch_receive_failures(&ctx->pairs))
            return -1; /* reports of failures also come from ranks that do not share this memory */
        if (yields && nap < LONG_NAP_NS) nap *= 2;
    }
    return 0;
}

/* Returns the rank's slot for a round. */
static unsigned char *slot(const comm_host *host, int rank, uint32_t round) {
    return (unsigned char *)host->rounds[rank] + PAGE_BYTES + (round % 2) * host->slot_bytes;
}

static unsigned char *next_slot(const comm_host *host) {
    return slot(host, host->rank, host->round + 1);
}

/* Publishes this rank's next slot and waits for all others. Then the slots of all ranks can be
 * read. */
static int meet_ranks(comm_mpi *ctx) {
    comm_host *host = &ctx->host;
    core_futex_set(host->rounds[host->rank], ++host->round);
    for (int i = 1; i < host->size; i++)
        if (wait_for_rank(ctx, (host->rank + i) % host->size)) return -1;
    return 0;
}

static const unsigned char *read_slot(const comm_host *host, int rank) {
    return slot(host, rank, host->round);
}

static int host_barrier(void *ctx) { return meet_ranks(ctx); }

static int host_broadcast(void *context, void *buf, uint64_t bytes, int root) {
    comm_mpi *ctx = context;
    const comm_host *host = &ctx->host;
    for (uint64_t done = 0, part; done < bytes; done += part) {
        part = core_min_u64(bytes - done, host->slot_bytes);
        unsigned char *at = (unsigned char *)buf + done;
        if (host->rank == root) memcpy(next_slot(host), at, part);
        if (meet_ranks(ctx)) return -1;
        if (host->rank != root) memcpy(at, read_slot(host, root), part);
    }
    return 0;
}

static int host_allreduce(void *context, uint64_t *buf, uint64_t count, dcp_reduce op) {
    comm_mpi *ctx = context;
    const comm_host *host = &ctx->host;
    for (uint64_t done = 0, n; done < count; done += n) {
        n = core_min_u64(count - done, host->slot_bytes / sizeof *buf);
        memcpy(next_slot(host), buf + done, n * sizeof *buf);
        if (meet_ranks(ctx)) return -1;
        for (int r = 0; r < host->size; r++)
            if (r != host->rank)
                comm_reduce(buf + done, (const uint64_t *)read_slot(host, r), n, op);
    }
    return 0;
}

static int host_gather(void *context, const void *send, uint64_t bytes, void *recv, int root) {
    comm_mpi *ctx = context;
    const comm_host *host = &ctx->host;
    for (uint64_t done = 0, part; done < bytes; done += part) {
        part = core_min_u64(bytes - done, host->slot_bytes);
        memcpy(next_slot(host), (const unsigned char *)send + done, part);
        if (meet_ranks(ctx)) return -1;
        for (int r = 0; host->rank == root && r < host->size; r++)
            memcpy((unsigned char *)recv + (uint64_t)r * bytes + done, read_slot(host, r), part);
    }
    return 0;
}

/* An all-to-all. The messages that a rank sends form one stream, in the order of the ranks that
 * receive them; a slot holds the stream's next part. The sizes of all messages go first. */
typedef struct streams {
    comm_mpi *ctx;
    const unsigned char *send;
    unsigned char *recv;
    const uint64_t *recv_bytes;
    uint64_t own_bytes, longest;
} streams;

/* Exchanges the sizes of all messages in one round. */
static int meet_sizes(streams *s, const uint64_t *send_bytes) {
    const comm_host *host = &s->ctx->host;
    memcpy(next_slot(host), send_bytes, (size_t)host->size * sizeof *send_bytes);
    if (meet_ranks(s->ctx)) return -1;
    for (int r = 0; r < host->size; r++) {
        const uint64_t *sizes = (const uint64_t *)read_slot(host, r);
        uint64_t length = 0;
        for (int to = 0; to < host->size; to++) {
            if (to == host->rank) host->begins[r] = length;
            length += sizes[to];
        }
        if (length > s->longest) s->longest = length;
        if (r == host->rank) s->own_bytes = length;
    }
    return 0;
}

/* Copies this rank's messages out of bytes [done, done + slot_bytes) of all streams. */
static void take_streams(const streams *s, uint64_t done) {
    const comm_host *host = &s->ctx->host;
    unsigned char *to = s->recv;
    for (int r = 0; r < host->size; to += s->recv_bytes[r++]) {
        uint64_t begin = host->begins[r], end = begin + s->recv_bytes[r], from = begin;
        if (from < done) from = done;
        if (end > done + host->slot_bytes) end = done + host->slot_bytes;
        if (from >= end || r == host->rank) continue;
        memcpy(to + (from - begin), read_slot(host, r) + (from - done), end - from);
    }
}

static void copy_own(const streams *s) {
    const comm_host *host = &s->ctx->host;
    unsigned char *to = s->recv;
    for (int r = 0; r < host->rank; r++) to += s->recv_bytes[r];
    if (s->recv_bytes[host->rank])
        memcpy(to, s->send + host->begins[host->rank], s->recv_bytes[host->rank]);
}

static int host_alltoall(void *context, const void *send, const uint64_t *send_bytes, void *recv,
                         const uint64_t *recv_bytes) {
    streams s = {.ctx = context, .send = send, .recv = recv, .recv_bytes = recv_bytes};
    const comm_host *host = &s.ctx->host;
    if (meet_sizes(&s, send_bytes)) return -1;
    copy_own(&s);
    for (uint64_t done = 0; done < s.longest; done += host->slot_bytes) {
        if (done < s.own_bytes)
            memcpy(next_slot(host), s.send + done,
                   core_min_u64(s.own_bytes - done, host->slot_bytes));
        if (meet_ranks(s.ctx)) return -1;
        take_streams(&s, done);
    }
    return 0;
}

const dcp_comm_ops comm_host_ops = {
    .size = sizeof comm_host_ops,
    .broadcast = host_broadcast,
    .allreduce = host_allreduce,
    .gather = host_gather,
    .alltoall = host_alltoall,
    .barrier = host_barrier,
};

#ifndef FEW_BYTES /* as in pairs.c */
#define FEW_BYTES 4096
#endif

/* Returns true if this rank shares memory with others on its host. */
static bool has_host(const comm_mpi *ctx) { return ctx->host.memory != NULL; }

static bool is_first(const comm_mpi *ctx) { return !has_host(ctx) || ctx->host.rank == 0; }

static int levels_barrier(void *context) {
    comm_mpi *ctx = context;
    int failed = has_host(ctx) && comm_host_ops.barrier(ctx);
    if (!failed && is_first(ctx)) failed = comm_pairs_ops.barrier(&ctx->between);
    return failed || (has_host(ctx) && comm_host_ops.barrier(ctx));
}

/* This rank's part in a collective with a root. On the root's host, the root stands for the host;
 * on every other host, the first rank does. */
typedef struct rooted {
    comm_mpi *ctx;
    int root, group; /* group: the root's group */
    int number;      /* among this host's ranks, the number of the one that stands for the host */
    bool stands;     /* true if this rank stands for its host */
} rooted;

static rooted begin_rooted(comm_mpi *ctx, int root) {
    rooted r = {.ctx = ctx, .root = root, .group = ctx->groups->of[root]};
    const bool is_here = r.group == ctx->groups->own;
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

/* Copies from blocks of `block` bytes, one per group, to each rank's place in `recv`. */
static void place_blocks(const comm_groups *groups, const unsigned char *blocks, uint64_t block,
                         uint64_t bytes, unsigned char *recv) {
    for (int g = 0; g < groups->n; g++)
        for (int i = 0; i < comm_groups_size(groups, g); i++)
            memcpy(recv + (uint64_t)comm_groups_rank(groups, g, i) * bytes,
                   blocks + (uint64_t)g * block + (uint64_t)i * bytes, bytes);
}

/* Each block is as large as the largest group's block, since all blocks of a gather have equal
 * sizes. */
static int gather_blocks(const rooted *r, const void *send, uint64_t bytes, unsigned char *recv) {
    comm_mpi *ctx = r->ctx;
    const comm_groups *groups = ctx->groups;
    const uint64_t block = (uint64_t)comm_groups_largest(groups) * bytes;
    const bool is_root = ctx->pairs.rank == r->root;
    unsigned char *own = r->stands ? calloc(1, block) : NULL;
    unsigned char *all = is_root ? core_array((uint64_t)groups->n, block) : NULL;
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
    int *first = core_array((size_t)groups->n, sizeof *first);
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
