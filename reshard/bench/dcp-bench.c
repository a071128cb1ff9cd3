/* dcp-bench: measures how fast a standard state is saved durably and loaded cold.
 *
 * Only the library's call is timed, from a barrier to the return of the slowest rank. Between
 * repeats the program removes older steps, but only steps that it wrote itself, whatever else is in
 * DIR. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <dcp/dcp.h>

#include "common/launch.h"
#include "programs/arguments.h"
#include "programs/fail.h"
#include "programs/program.h"

/* The benchmark's state has the tensors of a decoder with L layers, hidden size H and vocabulary V:
 * for each parameter three tensors, the parameter and two moments, in fp32 and cut on dimension 0.
 * A rank fills its part so that an element in the wrong place is detected. All boxes of a rank lie
 * in one arena. Each box begins on a page, where an allocator of large tensors would place it. The
 * arena has huge pages if the system supports them, as in dcp-train. */
typedef struct bench_tensor {
    char path[96];
    dcp_tensor tensor; /* tensor.path points to the member above */
    dcp_box box;       /* this rank's part */
    uint32_t *data;    /* in the arena, aligned to a page; NULL if the box is empty */
} bench_tensor;

typedef struct workload {
    bench_tensor *tensors;
    size_t n;
    uint64_t bytes; /* of all ranks together */
    char *arena;
    uint64_t arena_bytes;
    dcp_state *state;
} workload;

#define PAGE 4096
#define PER_LAYER 9
#define OUTSIDE_LAYERS 2
#define MATRIX 2

typedef struct shape {
    const char *name;
    uint32_t ndim;
    uint64_t rows, cols; /* in units of the hidden size */
} shape;

static const shape layer_shapes[PER_LAYER] = {
    {"input_layernorm", 1, 1, 0},       {"post_attention_layernorm", 1, 1, 0},
    {"self_attn.q_proj", MATRIX, 2, 1}, {"self_attn.k_proj", MATRIX, 1, 1},
    {"self_attn.v_proj", MATRIX, 1, 1}, {"self_attn.o_proj", MATRIX, 1, 2},
    {"mlp.gate_proj", MATRIX, 3, 1},    {"mlp.up_proj", MATRIX, 3, 1},
    {"mlp.down_proj", MATRIX, 1, 3},
};

static const char *const sections[] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};
#define SECTIONS (sizeof sections / sizeof *sections)

static void describe_outer(bench_tensor *t, const char *section, bool is_norm, uint64_t hidden,
                           uint64_t vocab) {
    snprintf(t->path, sizeof t->path, "/%s/model.%s.weight", section,
             is_norm ? "norm" : "embed_tokens");
    t->tensor = (dcp_tensor){t->path, DCP_F32, is_norm ? 1 : MATRIX, {is_norm ? hidden : vocab}};
    if (!is_norm) t->tensor.shape[1] = hidden;
}

static void describe_in_layer(bench_tensor *t, const char *section, uint64_t layer, const shape *s,
                              uint64_t hidden) {
    snprintf(t->path, sizeof t->path, "/%s/model.layers.%" PRIu64 ".%s.weight", section, layer,
             s->name);
    t->tensor = (dcp_tensor){t->path, DCP_F32, s->ndim, {s->rows * hidden, s->cols * hidden}};
}

static void describe_tensors(workload *work, uint64_t layers, uint64_t hidden, uint64_t vocab) {
    bench_tensor *t = work->tensors;
    for (size_t s = 0; s < SECTIONS; s++) {
        describe_outer(t++, sections[s], false, hidden, vocab);
        describe_outer(t++, sections[s], true, hidden, vocab);
        for (uint64_t layer = 0; layer < layers; layer++)
            for (size_t k = 0; k < PER_LAYER; k++)
                describe_in_layer(t++, sections[s], layer, &layer_shapes[k], hidden);
    }
}

static uint64_t box_bytes(const bench_tensor *t) {
    return dcp_box_elems(&t->box, t->tensor.ndim) * sizeof *t->data;
}

static uint64_t in_pages(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static int place_tensors(workload *work, int rank, int ranks, dcp_error *err) {
    for (size_t i = 0; i < work->n; i++) {
        bench_tensor *t = &work->tensors[i];
        t->box = dcp_box_chunk(&t->tensor, rank, ranks);
        work->bytes += dcp_tensor_bytes(&t->tensor);
        work->arena_bytes += in_pages(box_bytes(t));
    }
    if (work->arena_bytes == 0) return DCP_OK;
    void *arena =
        mmap(NULL, work->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED) return core_fail_memory(err, work->arena_bytes);
    madvise(arena, work->arena_bytes, MADV_HUGEPAGE); /* best effort */
    char *at = work->arena = arena;
    for (size_t i = 0; i < work->n; i++) {
        bench_tensor *t = &work->tensors[i];
        if (box_bytes(t) > 0) t->data = (uint32_t *)(void *)at;
        at += in_pages(box_bytes(t));
    }
    return DCP_OK;
}

static void clear_workload(workload *work) {
    if (work->arena) memset(work->arena, 0xa5, work->arena_bytes);
}

/* Describes the tensors, makes a state of this rank's boxes in a new arena, and touches the arena's
 * memory so that its pages exist. Not collective. */
static int make_workload(workload *work, uint64_t layers, uint64_t hidden, uint64_t vocab, int rank,
                         int ranks, dcp_error *err) {
    *work = (workload){.n = SECTIONS * (OUTSIDE_LAYERS + PER_LAYER * layers)};
    work->tensors = calloc(work->n, sizeof *work->tensors);
    if (!work->tensors) return core_fail_memory(err, work->n * sizeof *work->tensors);
    describe_tensors(work, layers, hidden, vocab);
    int status = place_tensors(work, rank, ranks, err);
    if (status == DCP_OK) status = dcp_state_create(&work->state, err);
    for (size_t i = 0; i < work->n && status == DCP_OK; i++) {
        bench_tensor *t = &work->tensors[i];
        status = dcp_state_add(work->state, &t->tensor, &t->box, t->data, err);
    }
    if (status == DCP_OK) clear_workload(work);
    return status;
}

static void free_workload(workload *work) {
    dcp_state_destroy(work->state);
    if (work->arena) munmap(work->arena, work->arena_bytes);
    free(work->tensors);
}

/* Returns the value of element `i` of tensor number `t`: 32 bits, which are compared bit by bit,
 * not as an fp32. */
static uint32_t pattern(size_t t, uint64_t i) {
    return (uint32_t)i * 2654435761u ^ (uint32_t)t * 0x9e3779b9u;
}

/* Returns the index of the box's first element in the tensor. */
static uint64_t first_elem(const bench_tensor *t) {
    return t->box.start[0] * (t->tensor.ndim == MATRIX ? t->tensor.shape[1] : 1);
}

/* Gives each element the value that its tensor and index determine. */
static void fill_workload(workload *work) {
    for (size_t k = 0; k < work->n; k++) {
        const bench_tensor *t = &work->tensors[k];
        uint64_t n = dcp_box_elems(&t->box, t->tensor.ndim), first = first_elem(t);
        for (uint64_t i = 0; i < n; i++) t->data[i] = pattern(k, first + i);
    }
}

/* Returns the path of the first tensor in which an element differs from the value that was filled
 * in; NULL if no element does. */
static const char *check_workload(const workload *work) {
    for (size_t k = 0; k < work->n; k++) {
        const bench_tensor *t = &work->tensors[k];
        uint64_t n = dcp_box_elems(&t->box, t->tensor.ndim), first = first_elem(t);
        uint32_t wrong = 0;
        for (uint64_t i = 0; i < n; i++) wrong |= t->data[i] ^ pattern(k, first + i);
        if (wrong) return t->path;
    }
    return NULL;
}

#define BENCH_TOOL "dcp-bench" /* the tool's name in about.json */

typedef struct bench {
    launch job;
    workload work;
    const char *dir;
    uint64_t repeats, copies;
    dcp_engine engine;
    bool dry_run, repeated, trust;
} bench;

/* Returns true if about.json names this program; with `by_other`, if it names another program. */
static bool is_by(const char *folder, bool by_other) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/about.json", folder) >= PATH_MAX) return false;
    json_t *about = json_load_file(path, 0, NULL);
    const char *tool = json_string_value(json_object_get(about, "tool"));
    bool is = tool && (strcmp(tool, BENCH_TOOL) != 0) == by_other;
    json_decref(about);
    return is;
}

/* Removes a step. As in the library, the step is renamed first; if the removal is then interrupted,
 * the next writer removes the rest. */
static void remove_step(const char *dir, const char *name) {
    char step[PATH_MAX], trash[PATH_MAX], file[PATH_MAX + 16];
    snprintf(step, sizeof step, "%s/%s", dir, name);
    snprintf(trash, sizeof trash, "%s/.trash-%s", dir, name);
    if (!is_by(step, false) || rename(step, trash) != 0) return;
    snprintf(file, sizeof file, "%s/state.h5", trash);
    unlink(file);
    snprintf(file, sizeof file, "%s/about.json", trash);
    unlink(file);
    rmdir(trash);
}

/* Rank 0 removes the steps before `step`, but only those that dcp-bench wrote. */
static void remove_steps_before(const launch *job, const char *dir, uint64_t step) {
    dcp_step *steps;
    size_t n;
    if (job->rank != 0 || step_path_list(dir, &steps, &n)) return;
    for (size_t i = 0; i < n && steps[i].step < step; i++) remove_step(dir, steps[i].name);
    free(steps);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    syncfs(fd); /* so that the removal does not slow down the next repeat */
    close(fd);
}

/* Returns the number of the newest complete step; 0 if there is none. Collective. */
static uint64_t find_newest(const launch *job, const char *dir) {
    dcp_step *steps;
    size_t n;
    uint64_t newest = 0;
    if (job->rank == 0 && step_path_list(dir, &steps, &n) == 0) {
        if (n) newest = steps[n - 1].step;
        free(steps);
    }
    launch_broadcast(job, &newest, sizeof newest);
    return newest;
}

/* Returns PROGRAM_USAGE, with a message, if DIR holds another program's steps: a benchmark's newer
 * steps must not hide the steps of a training run. Collective. */
static int check_dir(const launch *job, const char *dir) {
    size_t n = 0;
    dcp_step *steps = NULL;
    int status = job->rank == 0 ? step_path_list(dir, &steps, &n) : PROGRAM_DONE;
    for (size_t i = 0; i < n && status == PROGRAM_DONE; i++) {
        char step[PATH_MAX];
        snprintf(step, sizeof step, "%s/%s", dir, steps[i].name);
        if (is_by(step, true))
            status = program_refuse("%s: belongs to another program; choose another folder", step);
    }
    free(steps);
    return launch_worst(job, status);
}

/* Drops the pages of a step's files from the machine's page cache. Collective. */
static void drop_cache(const launch *job, const char *folder) {
    DIR *stream = opendir(folder);
    struct dirent *entry;
    while (stream && (entry = readdir(stream))) {
        int fd = openat(dirfd(stream), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    if (stream) closedir(stream);
    if (job->mpi) MPI_Barrier(MPI_COMM_WORLD);
}

static double start_together(const launch *job) {
    if (job->mpi) MPI_Barrier(MPI_COMM_WORLD);
    return program_now_s();
}

static double processor_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the processor time that all threads of this process except the calling one have used,
 * including threads in which the kernel works for the process. */
static double others_processor_s(void) {
    return processor_s(CLOCK_PROCESS_CPUTIME_ID) - processor_s(CLOCK_THREAD_CPUTIME_ID);
}

/* Prints one line about a repeat, with the times of the slowest rank. The processor time is the sum
 * over all ranks. */
static void print_times(const bench *b, const char *op, double s, double stall_s, double cpu_s,
                        const dcp_report *report) {
    double times[] = {s,
                      stall_s,
                      report->plan_s,
                      report->gather_s,
                      report->copy_s,
                      report->write_s,
                      report->sync_s,
                      report->publish_s};
    if (b->job.mpi)
        MPI_Allreduce(MPI_IN_PLACE, times, sizeof times / sizeof *times, MPI_DOUBLE, MPI_MAX,
                      MPI_COMM_WORLD);
    if (b->job.mpi) MPI_Allreduce(MPI_IN_PLACE, &cpu_s, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (b->job.rank != 0) return;
    printf("{\"op\":\"%s\",\"engine\":\"%s\",\"ranks\":%d,\"bytes\":%" PRIu64
           ",\"s\":%.4f,\"gb_per_s\":%.3f,\"stall_s\":%.4f,\"plan_s\":%.4f,\"gather_s\":%.4f,"
           "\"copy_s\":%.4f,\"write_s\":%.4f,\"sync_s\":%.4f,\"publish_s\":%.4f,\"processor_s\":%."
           "4f}\n",
           op, dcp_engine_name(report->engine), b->job.size, b->work.bytes, times[0],
           (double)b->work.bytes / 1e9 / times[0], times[1], times[2], times[3], times[4], times[5],
           times[6], times[7], cpu_s);
    fflush(stdout);
}

/* Prints the library's warnings, but only in the first repeat: later repeats save the same bytes
 * again, and the library warns about that. */
static void print_log(void *ctx, dcp_log_level level, const char *line) {
    const bench *b = ctx;
    if (level == DCP_LOG_WARNING && !b->repeated) program_note("%s", line);
}

/* Saves once, synchronously or, with `async`, in the background. The stall of a background save is
 * the time until the call returns. The processor time of a background save includes all threads
 * except this one, which sleeps meanwhile. */
static int save_once(bench *b, dcp_store *store, uint64_t step, bool async, dcp_error *err) {
    dcp_report report = DCP_REPORT_INIT;
    const dcp_save_options options = {.size = sizeof options,
                                      .engine = b->engine,
                                      .replicas =
                                          b->trust ? DCP_REPLICAS_TRUST : DCP_REPLICAS_CHECK};
    dcp_saving *saving;
    int status;
    double start_s = start_together(&b->job), stall_s = 0, cpu_s = others_processor_s();
    if (async) {
        status = dcp_save_async(store, step, b->work.state, NULL, &options, &saving, err);
        stall_s = program_now_s() - start_s;
        if (status == DCP_OK) status = dcp_save_wait(saving, &report, err);
    } else {
        status = dcp_save(store, step, b->work.state, NULL, &options, &report, err);
    }
    double s = program_now_s() - start_s;
    cpu_s = async ? others_processor_s() - cpu_s : 0;
    if (status == DCP_OK) print_times(b, async ? "async" : "save", s, stall_s, cpu_s, &report);
    return status;
}

static int bench_save(bench *b, bool async) {
    dcp_error err = {0};
    dcp_store *store;
    int steps = check_dir(&b->job, b->dir);
    if (steps != PROGRAM_DONE) return steps;
    dcp_store_options options = {
        .size = sizeof options, .tool = BENCH_TOOL, .log = print_log, .log_ctx = b};
    if (dcp_store_open(b->job.comm, b->dir, &options, &store, &err)) return program_report(&err);
    fill_workload(&b->work);
    uint64_t step = find_newest(&b->job, b->dir);
    int status = DCP_OK;
    for (uint64_t r = 0; r < b->repeats && status == DCP_OK; r++) {
        status = save_once(b, store, ++step, async, &err);
        if (status != DCP_OK) break;
        remove_steps_before(&b->job, b->dir, step);
        b->repeated = true;
    }
    dcp_store_close(store);
    return status == DCP_OK ? PROGRAM_DONE : program_report(&err);
}

/* Checks that the step contains the tensors that this run would have saved. Returns PROGRAM_DONE,
 * or a failure's status. */
static int check_sizes(const bench *b) {
    dcp_error err = {0};
    dcp_checkpoint *ckpt;
    if (dcp_checkpoint_open(b->job.comm, b->dir, &ckpt, &err)) return program_report(&err);
    bool same = dcp_checkpoint_tensors(ckpt) == b->work.n;
    for (size_t i = 0; i < b->work.n && same; i++) {
        const dcp_tensor *want = &b->work.tensors[i].tensor;
        const dcp_tensor *have = dcp_checkpoint_find(ckpt, want->path);
        same = have && have->dtype == want->dtype && have->ndim == want->ndim &&
               memcmp(have->shape, want->shape, want->ndim * sizeof *want->shape) == 0;
    }
    if (!same && b->job.rank == 0)
        program_note("%s was saved with other sizes: pass the --layers, --hidden and --vocab with "
                     "which it was saved",
                     dcp_checkpoint_path(ckpt));
    dcp_checkpoint_close(ckpt);
    return same ? PROGRAM_DONE : PROGRAM_USAGE;
}

/* Loads the newest complete step of DIR, or DIR itself if it is a step's folder. */
static int load_once(bench *b) {
    dcp_error err = {0};
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/step-%08" PRIu64, b->dir, find_newest(&b->job, b->dir));
    drop_cache(&b->job, access(folder, F_OK) == 0 ? folder : b->dir);
    clear_workload(&b->work);

    dcp_report report = DCP_REPORT_INIT;
    dcp_checkpoint *ckpt;
    double start_s = start_together(&b->job);
    if (dcp_checkpoint_open(b->job.comm, b->dir, &ckpt, &err)) return program_report(&err);
    const dcp_load_options options = {.size = sizeof options, .engine = b->engine};
    int status = dcp_load_with(ckpt, b->work.state, &options, &report, &err);
    int result = status ? program_report(&err) : PROGRAM_DONE;
    double s = program_now_s() - start_s;
    dcp_checkpoint_close(ckpt);
    if (result == PROGRAM_DONE) print_times(b, "load", s, 0, 0, &report);
    return result;
}

static int bench_load(bench *b) {
    int sizes = check_sizes(b);
    if (sizes != PROGRAM_DONE) return sizes;
    for (uint64_t r = 0; r < b->repeats; r++) {
        int result = load_once(b);
        if (result != PROGRAM_DONE) return result;
        const char *wrong = check_workload(&b->work);
        if (wrong)
            program_note("rank %d: %s holds other values than those that were saved", b->job.rank,
                         wrong);
        int worst = launch_worst(&b->job, wrong ? PROGRAM_DIFFERS : PROGRAM_DONE);
        if (worst != PROGRAM_DONE) return worst;
    }
    return PROGRAM_DONE;
}

typedef struct bench_sizes {
    uint64_t layers, hidden, vocab;
} bench_sizes;

/* Collective. */
static void print_planned(const bench *b, const char *op) {
    char text[32];
    uint64_t newest = find_newest(&b->job, b->dir);
    if (b->job.rank != 0) return;
    bool loads = strcmp(op, "load") == 0;
    printf("%s %s/step-%08" PRIu64 ": %zu tensors, %s, by %d %s, repeat %" PRIu64 "\n",
           loads ? "read" : "write", b->dir, loads ? newest : newest + 1, b->work.n,
           program_bytes_text(b->work.bytes, text), b->job.size,
           b->job.size == 1 ? "rank" : "ranks", b->repeats);
}

/* Checks that the ranks can be divided into copies: the ranks of one copy hold the whole state
 * together, and the ranks of the other copies hold the same parts. */
static int check_copies(bench *b) {
    if ((uint64_t)b->job.size % b->copies == 0) return PROGRAM_DONE;
    int status = PROGRAM_USAGE;
    if (b->job.rank == 0)
        status =
            program_refuse("--copies %" PRIu64 ": must divide the number of ranks, which is %d",
                           b->copies, b->job.size);
    launch_end(&b->job);
    return status;
}

static int run_bench(bench *b, const char *op, const bench_sizes *size) {
    dcp_error err;
    int result = launch_start(&b->job);
    if (result != 0) return result;
    result = check_copies(b);
    if (result != PROGRAM_DONE) return result;
    const int parts = b->job.size / (int)b->copies;
    int status = make_workload(&b->work, size->layers, size->hidden, size->vocab,
                               b->job.rank % parts, parts, &err);
    if (status != DCP_OK) program_note("rank %d: %s", b->job.rank, err.message);
    result = launch_worst(&b->job, status == DCP_OK ? PROGRAM_DONE : PROGRAM_FAILED);
    if (result == PROGRAM_DONE && b->dry_run)
        result = strcmp(op, "load") == 0 ? check_sizes(b) : PROGRAM_DONE;
    if (result == PROGRAM_DONE && b->dry_run)
        print_planned(b, op);
    else if (result == PROGRAM_DONE)
        result = strcmp(op, "load") == 0 ? bench_load(b) : bench_save(b, strcmp(op, "async") == 0);
    free_workload(&b->work);
    launch_end(&b->job);
    return result;
}

static int check_op(const char *op) {
    if (strcmp(op, "save") == 0 || strcmp(op, "async") == 0 || strcmp(op, "load") == 0) return 0;
    if (program_rank() != 0) return PROGRAM_USAGE;
    return program_refuse("'%s' is not one of save, async, load", op);
}

static int parse_engine(const char *name, dcp_engine *out) {
    if (dcp_engine_parse(name, out) == DCP_OK) return 0;
    if (program_rank() != 0) return PROGRAM_USAGE;
    if (strcmp(name, "cufile") == 0)
        return program_refuse(
            "--engine cufile was removed, because no machine had run it: use auto");
    return program_refuse("--engine %s: not one of auto, direct, mpio", name);
}

static const char about[] =
    "Common use:\n"
    "  mpirun --oversubscribe -n 4 dcp-bench save DIR --repeat 3    2.28 GB in 276 tensors\n"
    "  mpirun --oversubscribe -n 4 dcp-bench load DIR\n"
    "  mpirun --oversubscribe -n 4 dcp-bench save DIR --layers 400 --hidden 64 --vocab 1000\n"
    "\n"
    "Times durable saves, saves in flight (async), or loads from a cold page cache. The state\n"
    "is a decoder's parameters and moments in fp32; under mpirun -n N, it is divided among N\n"
    "ranks. Prints one JSON object per repeat. save and async leave the last step in DIR, and\n"
    "remove earlier steps that dcp-bench wrote. load requires the sizes that were saved.";

int main(int argc, char **argv) {
    const char *layers = "10", *hidden = "1024", *vocab = "32000", *repeat = "1", *engine = "auto";
    const char *copies = "1";
    bench b = {0};
    const program_option options[] = {
        PROGRAM_VALUE("layers", "L", "decoder layers (10)", &layers),
        PROGRAM_VALUE("hidden", "H", "hidden size (1024)", &hidden),
        PROGRAM_VALUE("vocab", "V", "vocabulary (32000)", &vocab),
        PROGRAM_VALUE("repeat", "R", "measure R times (1)", &repeat),
        PROGRAM_VALUE("engine", "NAME", "auto, direct or mpio (auto; mpio needs mpirun)", &engine),
        PROGRAM_VALUE("copies", "N", "N ranks hold each part of the state (1)", &copies),
        PROGRAM_FLAG("trust", "do not compare the copies when saving", &b.trust),
        {0},
    };
    const program_command program = {
        .name = BENCH_TOOL,
        .usage = "save|async|load DIR [OPTIONS]",
        .about = about,
        .options = options,
        .dry_run = &b.dry_run,
    };
    char **args;
    int n, result = program_arguments_parse(&program, argc, argv, 2, 2, &args, &n);
    if (result >= 0) return result;
    bench_sizes size;
    if ((result = check_op(args[0])) || (result = parse_engine(engine, &b.engine)) ||
        (result = program_count_parse("--layers", layers, 1, 100000, &size.layers)) ||
        (result = program_count_parse("--hidden", hidden, 1, 1 << 20, &size.hidden)) ||
        (result = program_count_parse("--vocab", vocab, 1, 1 << 28, &size.vocab)) ||
        (result = program_count_parse("--repeat", repeat, 1, 1 << 20, &b.repeats)) ||
        (result = program_count_parse("--copies", copies, 1, 1 << 20, &b.copies)))
        return result;
    b.dir = args[1];
    return run_bench(&b, args[0], &size);
}
