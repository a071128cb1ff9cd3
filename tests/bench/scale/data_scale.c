/* What moving a state's bytes costs each of many ranks: requests to files, messages, collectives,
 * memory and processor time of saves and of a load. All ranks are simulated in this process
 * (crowd.h): the library's own code plans and moves, from dcp_store_open to the end of dcp_load.
 * Bytes of tensors are neither read nor copied nor written (data.h).
 *
 *   data_scale MODEL [--ranks 512] [--host 8] [--shards N] [--layers L] [--apart] [--clock]
 *              [--sharded] [--dir DIR] [--trace FILE]
 *
 * MODEL is 8b, 70b, 405b, small or tiny. --host: ranks a host. --shards: less than the ranks where
 * boxes have replicas (HSDP): rank r holds number r % N. --layers: of the model, fewer than it has,
 * which makes a run shorter. --apart: the ranks of a host share no memory. --clock: processor time
 * as well. --trace lists the requests of the save with a kept plan and of the load. Prints a JSON
 * object for each operation.
 */
#include <getopt.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "crowd.h"
#include "data.h"
#include "models.h"
#include "world.h"

enum { OPEN_STORE, SAVE_FIRST, SAVE_AGAIN, SAVE_KEPT, OPEN_STEP, LOAD, OPERATIONS };

static const char *const names[OPERATIONS] = {"open_store", "save_first", "save_again",
                                              "save_kept",  "open_step",  "load"};

typedef struct bench {
    model model;
    int shards, of_layers;
    dcp_layout layout;
    crowd crowd;
    char dir[256];
    FILE *trace;
    ptrdiff_t *state_bytes; /* of the heap, before the library has anything */
} bench;

static bench all;

static void must(int status, const dcp_error *err) {
    if (!status) return;
    fprintf(stderr, "rank %d: %s\n", crowd_now()->rank, err->message);
    exit(3);
}

static void *box_memory(uint64_t bytes) {
    (void)bytes;
    return data_box();
}

static void begin(crowd *c, int operation) {
    (void)operation;
    counts_clear(&c->counts);
    for (int r = 0; r < c->size; r++) {
        c->ranks[r].cpu_s = 0;
        c->ranks[r].heap.peak = c->ranks[r].heap.now;
    }
}

static int ascending(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void print_spread(const char *key, double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    printf(",\"%s\":%.3f,\"%s_most\":%.3f", key, values[n / 2], key, values[n - 1]);
}

static void print_costs(const crowd *c) {
    double *values = calloc((size_t)c->size, sizeof *values);
    NEED(values);
    for (int r = 0; r < c->size; r++)
        values[r] = (double)(c->ranks[r].heap.peak - all.state_bytes[r]) / (1 << 20);
    print_spread("mib", values, c->size);
    for (int r = 0; r < c->size; r++) values[r] = 1e3 * c->ranks[r].cpu_s;
    if (c->clocks) print_spread("cpu_ms", values, c->size);
    free(values);
}

static void print_requests(const counts *c, int writes) {
    counts_summary s;
    counts_summarize(c, writes, &s);
    printf(",\"%s\":{\"n\":%llu,\"bytes\":%llu,\"median\":%llu,\"in_large\":%.4f,"
           "\"in_aligned\":%.4f,\"ranks\":%d,\"most_over_mean\":%.3f,\"most_ranks_of_mib\":%d}",
           writes ? "writes" : "reads", (unsigned long long)s.n, (unsigned long long)s.bytes,
           (unsigned long long)s.median, s.in_large, s.in_aligned, s.ranks, s.most_over_mean,
           s.most_ranks_of_mib);
}

static void print_messages(const char *key, const counts *c, const counts_messages *m) {
    printf(",\"%s\":{\"n\":%llu,\"bytes\":%llu,\"between\":%llu,\"usual\":%llu,\"peers\":%d}", key,
           (unsigned long long)m->n, (unsigned long long)m->bytes, (unsigned long long)m->between,
           (unsigned long long)counts_usual_message(m), counts_most_peers(c, m));
}

static void end(crowd *ranks, int operation) {
    counts *c = &ranks->counts;
    const int hosts = (ranks->size + ranks->ranks_a_host - 1) / ranks->ranks_a_host;
    counts_sort(c);
    printf("{\"op\":\"%s\",\"model\":\"%s\",\"layers\":%d,\"of_layers\":%d,\"state_bytes\":%llu,"
           "\"ranks\":%d,\"hosts\":%d,\"shards\":%d",
           names[operation], all.model.name, all.model.layers, all.of_layers,
           (unsigned long long)model_bytes(&all.model), ranks->size, hosts, all.shards);
    printf(",\"collectives\":%llu,\"data_collectives\":%llu,\"empty_collectives\":%llu",
           (unsigned long long)c->collectives, (unsigned long long)c->data_collectives,
           (unsigned long long)c->empty_collectives);
    printf(",\"host_collectives\":%llu,\"shared_bytes\":%llu",
           (unsigned long long)(c->host_collectives / (uint64_t)hosts),
           (unsigned long long)c->shared_bytes);
    print_costs(ranks);
    print_requests(c, 1);
    print_requests(c, 0);
    print_messages("data", c, &c->data);
    print_messages("other", c, &c->other);
    printf("}\n");
    fflush(stdout);
    if (all.trace && (operation == SAVE_KEPT || operation == LOAD))
        counts_print_requests(c, all.trace);
}

static void save(dcp_store *store, const dcp_state *state, int operation) {
    const dcp_save_options options = {
        .size = sizeof options, .layout = all.layout, .engine = DCP_ENGINE_DIRECT};
    dcp_error err = {0};
    crowd_meet(&all.crowd, begin, operation);
    must(dcp_save(store, (uint64_t)operation, state, "{}", &options, NULL, &err), &err);
    crowd_meet(&all.crowd, end, operation);
}

static void save_all(dcp_comm *comm, const dcp_state *state) {
    const dcp_store_options options = {.size = sizeof options};
    dcp_store *store;
    dcp_error err = {0};
    crowd_meet(&all.crowd, begin, OPEN_STORE);
    must(dcp_store_open(comm, all.dir, &options, &store, &err), &err);
    crowd_meet(&all.crowd, end, OPEN_STORE);
    for (int operation = SAVE_FIRST; operation <= SAVE_KEPT; operation++)
        save(store, state, operation);
    crowd_meet(&all.crowd, begin, 0);
    dcp_store_close(store);
}

static void load_all(dcp_comm *comm, const dcp_state *state) {
    const dcp_load_options options = {.size = sizeof options, .engine = DCP_ENGINE_DIRECT};
    dcp_checkpoint *ckpt;
    dcp_error err = {0};
    crowd_meet(&all.crowd, begin, OPEN_STEP);
    must(dcp_checkpoint_open(comm, all.dir, &ckpt, &err), &err);
    crowd_meet(&all.crowd, end, OPEN_STEP);
    crowd_meet(&all.crowd, begin, LOAD);
    must(dcp_load_with(ckpt, state, &options, NULL, &err), &err);
    crowd_meet(&all.crowd, end, LOAD);
    dcp_checkpoint_close(ckpt);
}

static void run_rank(void *ctx, int rank) {
    (void)ctx;
    dcp_comm *comm = crowd_comm(&all.crowd);
    dcp_state *state = model_state(&all.model, rank % all.shards, all.shards, box_memory);
    all.state_bytes[rank] = crowd_now()->heap.now;
    save_all(comm, state);
    load_all(comm, state);
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
}

typedef struct arguments {
    int ranks, host, shards, layers, apart, clock;
    const char *dir, *trace;
} arguments;

static void parse(arguments *a, int argc, char **argv) {
    static const struct option options[] = {{"ranks", 1, NULL, 'r'},   {"host", 1, NULL, 'h'},
                                            {"shards", 1, NULL, 'n'},  {"layers", 1, NULL, 'l'},
                                            {"apart", 0, NULL, 'a'},   {"clock", 0, NULL, 'c'},
                                            {"sharded", 0, NULL, 'S'}, {"dir", 1, NULL, 'd'},
                                            {"trace", 1, NULL, 't'},   {0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == '?') exit(2);
        if (c == 'r') a->ranks = atoi(optarg);
        if (c == 'h') a->host = atoi(optarg);
        if (c == 'n') a->shards = atoi(optarg);
        if (c == 'l') a->layers = atoi(optarg);
        if (c == 'a') a->apart = 1;
        if (c == 'c') a->clock = 1;
        if (c == 'S') all.layout = DCP_LAYOUT_SHARDED;
        if (c == 'd') a->dir = optarg;
        if (c == 't') a->trace = optarg;
    }
    const model *m = optind < argc ? model_find(argv[optind]) : NULL;
    NEED(m && a->ranks > 0 && a->host > 0);
    all.model = *m;
    all.of_layers = m->layers;
    if (a->layers && a->layers < m->layers) all.model.layers = a->layers;
    all.shards = a->shards ? a->shards : a->ranks;
}

/* A folder is open on each rank that has a step open. */
static void allow_many_files(void) {
    struct rlimit limit;
    NEED(!getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    NEED(!setrlimit(RLIMIT_NOFILE, &limit));
}

static void remove_scratch(void) {
    char command[sizeof all.dir + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", all.dir);
    if (system(command)) fprintf(stderr, "%s is left\n", all.dir);
}

int main(int argc, char **argv) {
    arguments a = {.ranks = 512, .host = 8, .dir = "/tmp"};
    parse(&a, argc, argv);
    allow_many_files();
    snprintf(all.dir, sizeof all.dir, "%s/data-scale-XXXXXX", a.dir);
    NEED(mkdtemp(all.dir));
    atexit(remove_scratch);
    if (a.trace) NEED((all.trace = fopen(a.trace, "w")));
    heap_keep_untouched();
    data_make();
    crowd_make(&all.crowd, a.ranks, a.host);
    all.crowd.shares = !a.apart;
    all.crowd.clocks = a.clock;
    all.state_bytes = calloc((size_t)a.ranks, sizeof *all.state_bytes);
    NEED(all.state_bytes);
    crowd_run(&all.crowd, run_rank);
    crowd_free(&all.crowd);
    free(all.state_bytes);
    if (all.trace) fclose(all.trace);
    return 0;
}
