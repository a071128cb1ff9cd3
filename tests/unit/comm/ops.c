/* A communicator over a caller's functions (here: threads), checks of its arguments, and what
 * happens if a function fails. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "core/fail.h"

#define RANKS 3

/* Ranks show each other a buffer between two barriers. */
struct world {
    pthread_barrier_t barrier;
    void *shown[RANKS];
};

struct seat {
    struct world *world;
    int rank;
    int failing; /* every collective fails */
};

static void meet(struct seat *seat) { pthread_barrier_wait(&seat->world->barrier); }

static int world_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    struct seat *seat = ctx;
    if (seat->failing) return 7;
    seat->world->shown[seat->rank] = buf;
    meet(seat);
    if (seat->rank != root) memcpy(buf, seat->world->shown[root], bytes);
    meet(seat);
    return 0;
}

static int world_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    struct seat *seat = ctx;
    if (seat->failing) return 7;
    assert_int_equal(op, DCP_REDUCE_MIN);
    assert_int_equal(count, 1);
    seat->world->shown[seat->rank] = buf;
    meet(seat);
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < RANKS; r++) {
        uint64_t theirs = *(uint64_t *)seat->world->shown[r];
        if (theirs < least) least = theirs;
    }
    meet(seat);
    *buf = least;
    return 0;
}

static int world_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    (void)send, (void)bytes, (void)recv, (void)root;
    return ((struct seat *)ctx)->failing ? 7 : 0;
}

static int world_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                          const uint64_t *recv_bytes) {
    (void)send, (void)send_bytes, (void)recv, (void)recv_bytes;
    return ((struct seat *)ctx)->failing ? 7 : 0;
}

static int world_barrier(void *ctx) {
    if (((struct seat *)ctx)->failing) return 7;
    meet(ctx);
    return 0;
}

static const dcp_comm_ops world_ops = {.size = sizeof(dcp_comm_ops),
                                       .broadcast = world_broadcast,
                                       .allreduce = world_allreduce,
                                       .gather = world_gather,
                                       .alltoall = world_alltoall,
                                       .barrier = world_barrier};

static void *two_of_three_fail(void *arg) {
    struct seat *seat = arg;
    dcp_comm *comm;
    dcp_error err = {0};
    assert_int_equal(dcp_comm_from_ops(&world_ops, seat, seat->rank, RANKS, &comm, &err), DCP_OK);
    assert_int_equal(dcp_comm_rank(comm), seat->rank);
    assert_int_equal(dcp_comm_size(comm), RANKS);
    assert_int_equal(comm_barrier(comm, &err), DCP_OK);
    int status = DCP_OK;
    if (seat->rank > 0) status = core_fail(&err, DCP_ERR_IO, "disk %d", seat->rank);
    assert_int_equal(comm_agree(comm, status, &err), DCP_ERR_IO);
    assert_int_equal(err.rank, 1);
    assert_string_equal(err.message, "rank 1: disk 1");
    dcp_comm_destroy(comm);
    return NULL;
}

static void threads_agree(void **state) {
    (void)state;
    struct world world;
    pthread_barrier_init(&world.barrier, NULL, RANKS);
    struct seat seats[RANKS];
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++) {
        seats[r] = (struct seat){&world, r, 0};
        pthread_create(&threads[r], NULL, two_of_three_fail, &seats[r]);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&world.barrier);
}

static void a_failing_function_is_a_comm_error(void **state) {
    (void)state;
    struct seat seat = {NULL, 1, 1};
    dcp_comm *comm;
    dcp_error err = {0};
    uint64_t word = 0, bytes[RANKS] = {0};
    assert_int_equal(dcp_comm_from_ops(&world_ops, &seat, 1, RANKS, &comm, &err), DCP_OK);
    assert_int_equal(comm_broadcast(comm, &word, 8, 0, &err), DCP_ERR_COMM);
    assert_non_null(strstr(err.message, "broadcast among 3 ranks failed with code 7 on rank 1"));
    assert_int_equal(comm_allreduce(comm, &word, 1, DCP_REDUCE_MIN, &err), DCP_ERR_COMM);
    assert_int_equal(comm_gather(comm, &word, 8, NULL, 0, &err), DCP_ERR_COMM);
    assert_int_equal(comm_alltoall(comm, NULL, bytes, NULL, bytes, &err), DCP_ERR_COMM);
    assert_int_equal(comm_barrier(comm, &err), DCP_ERR_COMM);
    assert_int_equal(comm_agree(comm, DCP_OK, NULL), DCP_ERR_COMM);
    dcp_comm_destroy(comm);
}

static int duplicate_nothing(void *ctx, void **out_ctx) {
    *out_ctx = ctx;
    return 0;
}

static void duplicates_need_both_functions(void **state) {
    (void)state;
    dcp_comm *comm = NULL;
    dcp_error err = {0};
    dcp_comm_ops ops = world_ops;
    ops.threads = 1;
    ops.duplicate = duplicate_nothing;
    assert_int_equal(dcp_comm_from_ops(&ops, NULL, 0, RANKS, &comm, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "the table has duplicate but no free"));
    ops.duplicate = NULL;
    ops.free = free;
    assert_int_equal(dcp_comm_from_ops(&ops, NULL, 0, RANKS, &comm, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "the table has free but no duplicate"));
    assert_null(comm);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    dcp_comm *comm = NULL;
    dcp_comm_ops incomplete = world_ops;
    incomplete.gather = NULL;
    assert_int_equal(dcp_comm_from_ops(NULL, NULL, 0, 1, &comm, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_comm_from_ops(&incomplete, NULL, 0, 1, &comm, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_comm_from_ops(&world_ops, NULL, 0, 0, &comm, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_comm_from_ops(&world_ops, NULL, 2, 2, &comm, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_comm_from_ops(&world_ops, NULL, -1, 2, &comm, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_comm_from_ops(&world_ops, NULL, 0, 1, NULL, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_comm_self(NULL, NULL), DCP_ERR_ARG);
    assert_null(comm);
    dcp_comm_destroy(NULL);
}

static void one_rank_alone(void **state) {
    (void)state;
    dcp_comm *comm;
    dcp_error err = {0};
    assert_int_equal(dcp_comm_self(&comm, &err), DCP_OK);
    assert_int_equal(dcp_comm_rank(comm), 0);
    assert_int_equal(dcp_comm_size(comm), 1);
    uint64_t three = 3, bytes = 8, copy = 0;
    assert_int_equal(comm_broadcast(comm, &three, 8, 0, &err), DCP_OK);
    assert_int_equal(comm_allreduce(comm, &three, 1, DCP_REDUCE_SUM, &err), DCP_OK);
    assert_int_equal(three, 3);
    assert_int_equal(comm_gather(comm, &three, 8, &copy, 0, &err), DCP_OK);
    assert_int_equal(copy, 3);
    copy = 0;
    assert_int_equal(comm_alltoall(comm, &three, &bytes, &copy, &bytes, &err), DCP_OK);
    assert_int_equal(copy, 3);
    assert_int_equal(comm_agree(comm, core_fail(&err, DCP_ERR_IO, "disk"), &err), DCP_ERR_IO);
    assert_string_equal(err.message, "disk");
    assert_int_equal(err.rank, 0);
    dcp_comm_destroy(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(a_failing_function_is_a_comm_error),
        cmocka_unit_test(duplicates_need_both_functions),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(one_rank_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
