/* What planning a save and a load costs one rank of many: CPU time and heap from the call of
 * dcp_save or dcp_load to the point where the first byte would move. The library's own code runs,
 * rank after rank in this process (world.h); only files are left out (planned.c).
 *
 *   plan_scale [--layers 400] [--ranks 1024] [--sample RANK,RANK,...] [--shards S]
 *              [--check]
 *
 * Every rank holds a box of each of 27 * layers + 6 tensors. With --sample these ranks alone are
 * measured, the others only send them what they would; rank 0 is always one. With --shards the load
 * is from S files of layout sharded, the saves are of layout global all the same. --check measures
 * nothing for people: it says whether the verdicts are right. The memory of the state itself is the
 * caller's and not counted. Target at 10,806 tensors x 1,024 ranks: 20 ms and 4 MiB a rank. Exit
 * status 1 where the memory is more. */
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "move/domain.h"
#include "plan/boxes.h"
#include "planned.h"
#include "save/context.h"
#include "stored.h"
#include "work.h"
#include "world.h"

#define BAD_RANK 5
#define BAD_TENSOR 77

typedef struct bench {
    int layers, ranks, check;
    int *sample, n_sample;
    work work;
    world world;
    state_tensor **sorted;
    stored stored;
    planned *first, *again, *load; /* a member of the sample */
    planned_cost open;             /* of the checkpoint's tables; what stays in memory */
} bench;

/* The boxes of a rank that matter to the sample: those whose homes are in it. */
static void hold_for_sample(bench *b, int rank) {
    for (size_t first = 0; first < b->work.n; first += (size_t)b->ranks)
        for (int s = 0; s < b->n_sample; s++) {
            size_t i = first + (size_t)b->sample[s];
            if (i < b->work.n) work_hold_one(b->sorted[i], rank, b->ranks);
        }
}

static int plan_one(bench *b, int rank, dcp_error *err) {
    plan_boxes boxes = {0};
    dcp_comm *comm = world_run(&b->world, rank);
    int status = plan_exchange(comm, DCP_OK, b->sorted, b->work.n, 1, &boxes, err);
    plan_boxes_free(&boxes);
    dcp_comm_destroy(comm);
    return status;
}

/* All-to-alls of a plan: sizes, boxes, verdicts. */
enum { BOXES_CAME = 2, VERDICTS_CAME = 3 };

/* Passes over all ranks, until what the sample is sent is known. `hold` sets a rank's boxes. */
static void record(bench *b, void (*hold)(bench *b, int rank), int calls) {
    b->world.recording = 1;
    for (int call = 0; call < calls; call++) {
        for (int rank = 0; rank < b->ranks; rank++) {
            hold(b, rank);
            NEED(plan_one(b, rank, NULL) == DCP_ERR_COMM);
        }
        world_recorded(&b->world);
    }
    b->world.recording = 0;
}

static void hold_all(bench *b, int rank) { work_hold(&b->work, rank, b->ranks); }

static void need_planned(const planned *p, size_t pieces, const dcp_error *err) {
    if (!p->reached || p->pieces != pieces) fprintf(stderr, "%zu: %s\n", p->pieces, err->message);
    NEED(p->reached && p->pieces == pieces);
}

static void measure_save(bench *b, int s) {
    dcp_error err = {0};
    dcp_store store = {.dir = (char *)".", .process = getpid()};
    hold_all(b, b->sample[s]);
    store.comm = world_run(&b->world, b->sample[s]);
    planned_save(&store, b->work.state, &b->first[s], &err);
    NEED(store.attachment);
    const struct save_plan *plan = save_context_of(&store)->plan;
    NEED(plan);
    size_t boxes = plan->boxes.n, runs = plan->file.skeleton.n_runs;
    NEED(boxes == b->work.n);
    need_planned(&b->first[s], boxes + runs, &err);
    planned_save(&store, b->work.state, &b->again[s], &err);
    need_planned(&b->again[s], boxes + runs, &err);
    if (!b->sample[s]) stored_make(&b->stored, &save_context_of(&store)->plan->file);
    store.attachment->free(store.attachment);
    dcp_comm_destroy(store.comm);
}

static void measure_load(bench *b, int s) {
    dcp_error err = {0};
    hold_all(b, b->sample[s]);
    dcp_comm *comm = world_run(&b->world, b->sample[s]);
    dcp_checkpoint *ckpt = stored_open(&b->stored, comm, &b->open);
    planned_load(ckpt, b->work.state, &b->load[s], &err);
    if (!b->stored.shards) need_planned(&b->load[s], b->work.n, &err);
    NEED(b->load[s].reached && b->load[s].pieces >= b->work.n);
    dcp_checkpoint_close(ckpt);
    dcp_comm_destroy(comm);
}

static void measure(bench *b) {
    for (int s = 0; s < b->n_sample; s++) measure_save(b, s);
    for (int s = 0; s < b->n_sample; s++) measure_load(b, s);
}

static int by_size(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double in_mib(size_t bytes) { return (double)bytes / (1 << 20); }

static planned_cost agreed(const planned *p) { return p->agreed; }
static planned_cost all(const planned *p) { return p->all; }

/* Median and most of all measured ranks but 0. */
static void row(const bench *b, const char *what, const char *key, const planned *list,
                planned_cost (*cost)(const planned *p)) {
    size_t n = (size_t)b->n_sample - 1;
    double *ms = calloc(n, sizeof *ms), *mib = calloc(n, sizeof *mib);
    NEED(ms && mib);
    for (size_t s = 0; s < n; s++) {
        planned_cost c = cost(&list[s + 1]);
        ms[s] = c.cpu_ms;
        mib[s] = in_mib(c.peak_bytes);
    }
    qsort(ms, n, sizeof *ms, by_size);
    qsort(mib, n, sizeof *mib, by_size);
    fprintf(stderr, "%-42s %8.2f %8.2f %8.2f %8.2f\n", what, ms[n / 2], ms[n - 1], mib[n / 2],
            mib[n - 1]);
    printf(",\"%s\":{\"ms\":%.3f,\"ms_max\":%.3f,\"mib\":%.3f,\"mib_max\":%.3f}", key, ms[n / 2],
           ms[n - 1], mib[n / 2], mib[n - 1]);
    free(ms);
    free(mib);
}

static void line(const char *what, const char *key, planned_cost cost) {
    fprintf(stderr, "%-42s %8.2f %17.2f\n", what, cost.cpu_ms, in_mib(cost.peak_bytes));
    printf(",\"%s\":{\"ms\":%.3f,\"mib\":%.3f}", key, cost.cpu_ms, in_mib(cost.peak_bytes));
}

static int has_target(const bench *b) { return b->work.n == 10806 && b->ranks == 1024; }

/* Whether the target's memory is enough for all ranks; any is where the work is not the target's.
 */
static int fits_memory(const bench *b) {
    int fits = 1;
    for (int s = 1; s < b->n_sample; s++)
        fits &= b->first[s].all.peak_bytes <= 4u << 20 && b->load[s].all.peak_bytes <= 4u << 20;
    return fits || !has_target(b);
}

/* All ranks in memory; the median in time, which other programs on the machine lengthen. */
static void say_target(const bench *b) {
    int n = 0;
    for (int s = 1; s < b->n_sample; s++)
        n += b->first[s].all.cpu_ms <= 20 && b->load[s].all.cpu_ms <= 20;
    fprintf(stderr, "target, 20 ms and 4 MiB: %s\n",
            fits_memory(b) && 2 * n >= b->n_sample - 1 ? "ok" : "MISSED");
}

static void report(const bench *b) {
    const planned *zero = &b->first[0];
    fprintf(stderr, "%zu tensors on %d ranks, a box of each on each; measured: ", b->work.n,
            b->ranks);
    for (int s = 0; s < b->n_sample && b->n_sample < b->ranks; s++)
        fprintf(stderr, "%d ", b->sample[s]);
    fprintf(stderr, "%s\n%-42s %8s %8s %8s %8s\n", b->n_sample < b->ranks ? "" : "all",
            "a rank's CPU time and heap", "ms", "most", "MiB", "most");
    printf("{\"op\":\"plan\",\"tensors\":%zu,\"ranks\":%d,\"measured\":%d", b->work.n, b->ranks,
           b->n_sample);
    row(b, "save, the first time: agreed", "save_plan", b->first, agreed);
    row(b, "                      to the first byte", "save", b->first, all);
    row(b, "save again, the same tensors: agreed", "again_plan", b->again, agreed);
    row(b, "                      to the first byte", "again", b->again, all);
    row(b, "load: to the first byte", "load", b->load, all);
    line("rank 0, save, the first time, and beside it", "rank0", zero->all);
    line("    HDF5's layout of the file, once", "layout", zero->layout);
    line("tables of an open checkpoint", "open", b->open);
    if (has_target(b)) say_target(b);
    fprintf(stderr, "%-42s %26.2f\n", "kept from save to save", in_mib(b->first[1].kept_bytes));
    printf(",\"kept_mib\":%.3f}\n", in_mib(b->first[1].kept_bytes));
}

static void hold_one_row_more(bench *b, int rank) {
    hold_all(b, rank);
    dcp_box *box = &b->sorted[BAD_TENSOR]->boxes[0].box;
    if (rank == BAD_RANK) box->start[0]--, box->count[0]++;
}

static void hold_one_row_less(bench *b, int rank) {
    hold_all(b, rank);
    if (rank == BAD_RANK) b->sorted[BAD_TENSOR]->n_boxes = 0;
}

/* A tensor that isn't covered once is refused by its home, which names it and the ranks. */
static void check_refused(bench *b, void (*hold)(bench *b, int rank), const char *why) {
    world_free(&b->world);
    world_make(&b->world, b->ranks, b->sample, b->n_sample);
    record(b, hold, VERDICTS_CAME);
    for (int rank = 0; rank < b->ranks; rank++) {
        dcp_error err = {0};
        hold(b, rank);
        int status = plan_one(b, rank, &err), home = rank == BAD_TENSOR % b->ranks;
        NEED(status == (home ? DCP_ERR_MISMATCH : DCP_OK)); /* of the others, each by itself */
        if (home) NEED(strstr(err.message, b->sorted[BAD_TENSOR]->tensor.path));
        if (home) NEED(strstr(err.message, why));
    }
}

static void parse_sample(bench *b, const char *list) {
    b->sample[b->n_sample++] = 0;
    for (char *end; list && *list; list = *end ? end + 1 : end) {
        int rank = (int)strtol(list, &end, 10);
        NEED(end != list && rank < b->ranks);
        if (rank > b->sample[b->n_sample - 1]) b->sample[b->n_sample++] = rank;
    }
    for (int rank = 1; rank < b->ranks && !list; rank++) b->sample[b->n_sample++] = rank;
    NEED(b->n_sample > 1);
}

static void parse(bench *b, int argc, char **argv) {
    static const struct option options[] = {{"layers", 1, NULL, 'l'}, {"ranks", 1, NULL, 'r'},
                                            {"sample", 1, NULL, 's'}, {"shards", 1, NULL, 'f'},
                                            {"check", 0, NULL, 'c'},  {0}};
    const char *sample = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == '?') exit(2);
        if (c == 'l') b->layers = atoi(optarg);
        if (c == 'r') b->ranks = atoi(optarg);
        if (c == 's') sample = optarg;
        if (c == 'f') b->stored.shards = atoi(optarg);
        if (c == 'c') b->check = 1;
    }
    NEED(b->layers > 2 && b->ranks > BAD_RANK);
    b->sample = calloc((size_t)b->ranks, sizeof *b->sample);
    NEED(b->sample);
    parse_sample(b, sample);
}

int main(int argc, char **argv) {
    bench b = {.layers = 400, .ranks = 1024};
    parse(&b, argc, argv);
    work_make(&b.work, b.layers, b.ranks);
    b.sorted = core_state_sorted(b.work.state);
    b.first = calloc((size_t)b.n_sample, sizeof *b.first);
    b.again = calloc((size_t)b.n_sample, sizeof *b.again);
    b.load = calloc((size_t)b.n_sample, sizeof *b.load);
    b.stored.sorted = b.sorted;
    b.stored.n = b.work.n;
    NEED(b.sorted && b.first && b.again && b.load);
    world_make(&b.world, b.ranks, b.sample, b.n_sample);
    work_hold_nothing(&b.work);
    if (b.n_sample == b.ranks)
        record(&b, hold_all, VERDICTS_CAME);
    else
        record(&b, hold_for_sample, BOXES_CAME);
    measure(&b);
    const int status = fits_memory(&b) ? 0 : 1;
    if (b.check) {
        check_refused(&b, hold_one_row_more, "rank 4 and box");
        check_refused(&b, hold_one_row_less, "in no rank's box");
    } else {
        report(&b);
    }
    world_free(&b.world);
    work_free(&b.work);
    free(b.sorted);
    free(b.stored.packed);
    free(b.first);
    free(b.again);
    free(b.load);
    free(b.sample);
    return status;
}
