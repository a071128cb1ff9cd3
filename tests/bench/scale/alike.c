/* Lists that are alike on all ranks: groups of ranks, and who aggregates. The simulated ranks share
 * them, and each is charged for its own (--wrap). */
#include <string.h>

#include "comm/comm.h"
#include "heap.h"
#include "move/domain.h"
#include "move/routes.h"
#include "world.h"

comm_groups *__real_comm_groups_make(int rank, int size, const uint64_t *keys);
comm_groups *__wrap_comm_groups_make(int rank, int size, const uint64_t *keys);
comm_groups *__wrap_comm_groups_make_single(int rank, int size);
void __real_comm_groups_release(comm_groups *groups);
void __wrap_comm_groups_release(comm_groups *groups);

/* Lists that were made, of the ranks of one world. */
typedef struct shared_lists {
    uint64_t *keys;
    comm_groups *groups;
    struct shared_lists *next;
} shared_lists;

static shared_lists *all_lists;

static ptrdiff_t list_bytes(int size) { return (ptrdiff_t)((3 * (size_t)size + 1) * sizeof(int)); }

static const comm_groups *find_lists(int size, const uint64_t *keys) {
    const size_t bytes = (size_t)size * sizeof *keys;
    for (const shared_lists *l = all_lists; l; l = l->next)
        if (memcmp(l->keys, keys, bytes) == 0) return l->groups;
    heap *counted = heap_use(NULL);
    shared_lists *made = malloc(sizeof *made);
    NEED(made);
    *made = (shared_lists){malloc(bytes), __real_comm_groups_make(0, size, keys), all_lists};
    NEED(made->keys && made->groups);
    memcpy(made->keys, keys, bytes);
    heap_use(counted);
    all_lists = made;
    return made->groups;
}

comm_groups *__wrap_comm_groups_make(int rank, int size, const uint64_t *keys) {
    const comm_groups *lists = find_lists(size, keys);
    comm_groups *g = malloc(sizeof *g);
    NEED(g);
    *g = (comm_groups){.n = lists->n,
                       .own = lists->of[rank],
                       .of = lists->of,
                       .first = lists->first,
                       .ranks = lists->ranks,
                       .users = 1};
    heap_add(list_bytes(size));
    return g;
}

comm_groups *__wrap_comm_groups_make_single(int rank, int size) {
    uint64_t *keys = malloc((size_t)size * sizeof *keys);
    NEED(keys);
    for (int r = 0; r < size; r++) keys[r] = (uint64_t)r;
    comm_groups *g = __wrap_comm_groups_make(rank, size, keys);
    free(keys);
    return g;
}

void __wrap_comm_groups_release(comm_groups *groups) {
    if (groups && atomic_load(&groups->users) == 1) heap_add(-list_bytes(groups->first[groups->n]));
    __real_comm_groups_release(groups);
}

int __real_move_routes_agree(dcp_comm *comm, int status, const move_piece *pieces, size_t n,
                             uint64_t end, int to_file, int *independent, move_windows *w,
                             dcp_error *err);
int __wrap_move_routes_agree(dcp_comm *comm, int status, const move_piece *pieces, size_t n,
                             uint64_t end, int to_file, int *independent, move_windows *w,
                             dcp_error *err);
void __real_move_windows_free(move_windows *w);
void __wrap_move_windows_free(move_windows *w);

/* The one list of them so far, or the last one. */
static move_aggregator *aggregators;
static size_t aggregator_bytes;

static void share_aggregators(move_windows *w) {
    const size_t bytes = (size_t)w->n_aggregators * sizeof *w->aggregators;
    if (!aggregators || bytes != aggregator_bytes || memcmp(aggregators, w->aggregators, bytes)) {
        heap *counted = heap_use(NULL);
        aggregators = malloc(bytes); /* some rank may have the one before */
        NEED(aggregators);
        memcpy(aggregators, w->aggregators, bytes);
        aggregator_bytes = bytes;
        heap_use(counted);
    }
    free(w->aggregators);
    w->aggregators = aggregators;
    heap_add((ptrdiff_t)bytes);
}

/* A list of the rank's own, which it may change. */
static void take_aggregators(move_windows *w) {
    heap_add(-(ptrdiff_t)aggregator_bytes);
    w->aggregators = malloc(aggregator_bytes);
    NEED(w->aggregators);
    memcpy(w->aggregators, aggregators, aggregator_bytes);
}

int __wrap_move_routes_agree(dcp_comm *comm, int status, const move_piece *pieces, size_t n,
                             uint64_t end, int to_file, int *independent, move_windows *w,
                             dcp_error *err) {
    NEED(!status);
    share_aggregators(w);
    status = __real_move_routes_agree(comm, status, pieces, n, end, to_file, independent, w, err);
    if (!status && *independent) take_aggregators(w);
    return status;
}

void __wrap_move_windows_free(move_windows *w) {
    if (w->aggregators && w->aggregators == aggregators) {
        heap_add(-(ptrdiff_t)aggregator_bytes);
        w->aggregators = NULL;
    }
    __real_move_windows_free(w);
}
