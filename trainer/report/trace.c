#include "report/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "programs/fail.h"
#include "programs/program.h"
#include "ranks/log.h"

/* Threads of a rank. Gathers and fills have one thread per lane. */
enum { STEPS, COMPUTE, COMM, SAVE, SUMS, GATHERS, FILLS = GATHERS + TIMELINE_LANES };
enum { TAG_PING = 1, TAG_EVENTS, PINGS = 16 };
static const char head[] =
    "{\"otherData\": {\"program\": \"dcp-train\"}, \"displayTimeUnit\": \"ms\",\n"
    "\"traceEvents\": [\n";
static const char tail[] = "\n]}\n";
/* Shorter waits are not shown, because there was nothing to wait for. */
static const double least_wait_s = 1e-6;

struct report_trace {
    MPI_Comm comm;
    int rank, world;
    size_t room;
    FILE *file; /* on rank 0; NULL after a failure */
    bool is_empty, has_failed;
    long end;               /* where the tail begins */
    double origin;          /* the start of the trace, by rank 0's clock */
    double *offsets;        /* [world] on rank 0: seconds to add to a rank's clock */
    timeline_event *others; /* [room] on rank 0: another rank's events */
};

static const struct {
    const char *name;
    int thread;
    bool has_unit;
} kinds[TIMELINE_KINDS] = {
    [TIMELINE_DATA] = {"read data", COMPUTE, false},
    [TIMELINE_FORWARD] = {"forward", COMPUTE, true},
    [TIMELINE_BACKWARD] = {"backward", COMPUTE, true},
    [TIMELINE_WAIT] = {"wait for", COMM, true},
    [TIMELINE_REDUCE] = {"reduce", COMM, true},
    [TIMELINE_OPTIMIZER] = {"optimizer", COMPUTE, false},
    [TIMELINE_EVALUATE] = {"evaluate", COMPUTE, false},
    [TIMELINE_STALL] = {"wait for save", COMPUTE, false},
    [TIMELINE_GATHER] = {"gather", GATHERS, true},
    [TIMELINE_SUM] = {"sum gradients of", SUMS, true},
    [TIMELINE_FILL] = {"fill with step", FILLS, false},
    [TIMELINE_SAVE] = {"save step", SAVE, false},
    [TIMELINE_SAVE_PLAN] = {"plan", SAVE, false},
    [TIMELINE_SAVE_GATHER] = {"gather pieces", SAVE, false},
    [TIMELINE_SAVE_COPY] = {"copy", SAVE, false},
    [TIMELINE_SAVE_WRITE] = {"write", SAVE, false},
    [TIMELINE_SAVE_SYNC] = {"sync", SAVE, false},
    [TIMELINE_SAVE_PUBLISH] = {"publish", SAVE, false},
};

/* Returns, on rank 0, the seconds to add to the clock of rank `r`. Called by ranks 0 and `r`. */
static double compare_clocks(const report_trace *t, int r) {
    double best = 1e300, offset = 0;
    for (int i = 0; i < PINGS; i++) {
        double there = MPI_Wtime();
        const double sent = there;
        if (t->rank == 0) MPI_Send(&there, 1, MPI_DOUBLE, r, TAG_PING, t->comm);
        MPI_Recv(&there, 1, MPI_DOUBLE, t->rank == 0 ? r : 0, TAG_PING, t->comm, MPI_STATUS_IGNORE);
        const double back = MPI_Wtime();
        there = t->rank == 0 ? there : back;
        if (t->rank != 0) MPI_Send(&there, 1, MPI_DOUBLE, 0, TAG_PING, t->comm);
        if (back - sent >= best) continue;
        best = back - sent;
        offset = (sent + back) / 2 - there;
    }
    return offset;
}

static void begin_event(report_trace *t) {
    if (!t->is_empty) fputs(",\n", t->file);
    t->is_empty = false;
}

static void name_thread(report_trace *t, int rank, int thread, const char *name) {
    begin_event(t);
    fprintf(t->file,
            "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, "
            "\"args\": {\"name\": \"%s\"}}",
            rank, thread, name);
}

static void name_rank(report_trace *t, int rank) {
    begin_event(t);
    fprintf(t->file,
            "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, "
            "\"args\": {\"name\": \"rank %d\"}}",
            rank, rank);
    if (rank == 0) name_thread(t, rank, STEPS, "steps");
    name_thread(t, rank, COMPUTE, "compute");
    name_thread(t, rank, COMM, "comm");
    name_thread(t, rank, SAVE, "save");
    name_thread(t, rank, SUMS, "sums");
    name_thread(t, rank, GATHERS, "gathers");
    name_thread(t, rank, FILLS + 1, "fills of stores"); /* +1: the first store is rarely filled */
}

/* Returns the time since the start of the trace in whole nanoseconds. Without rounding, consecutive
 * events could overlap in the last digit, and a viewer would drop them. */
static double nanoseconds(const report_trace *t, int rank, double when) {
    return round((when + t->offsets[rank] - t->origin) * 1e9);
}

static void put_event(report_trace *t, int rank, const timeline_event *e) {
    const int thread = kinds[e->kind].thread + e->lane;
    const bool takes_unit = kinds[e->kind].has_unit;
    const bool takes_step = e->kind == TIMELINE_SAVE || e->kind == TIMELINE_FILL;
    const double begin = nanoseconds(t, rank, e->begin);
    const char *name = kinds[e->kind].name;
    if (e->kind == TIMELINE_WAIT && e->end - e->begin < least_wait_s) return;
    if (takes_unit && e->which < 0) name = "sum losses"; /* belongs to no unit */
    begin_event(t);
    fprintf(t->file, "{\"ph\": \"X\", \"name\": \"%s", name);
    if ((takes_unit && e->which >= 0) || takes_step)
        fprintf(t->file, takes_unit ? " unit %d" : " %d", e->which);
    fprintf(t->file, "\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f", rank, thread,
            begin / 1e3, (nanoseconds(t, rank, e->end) - begin) / 1e3);
    if (takes_unit && e->which >= 0) fprintf(t->file, ", \"args\": {\"unit\": %d}", e->which);
    fputs("}", t->file);
}

void report_trace_step(report_trace *t, uint64_t step, double loss, double begin, double end) {
    const double from = nanoseconds(t, 0, begin);
    if (!t->file) return;
    fseek(t->file, t->end, SEEK_SET);
    begin_event(t);
    fprintf(t->file,
            "{\"ph\": \"X\", \"name\": \"step %" PRIu64
            "\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"loss\": ",
            step, STEPS, from / 1e3, (nanoseconds(t, 0, end) - from) / 1e3);
    fprintf(t->file, isfinite(loss) ? "%.9g}}" : "null}}", loss);
    t->end = ftell(t->file);
}

/* Completes the file, and records where to continue. */
static int put_tail(report_trace *t, dcp_error *err) {
    if (!t->file) return DCP_OK;
    t->end = ftell(t->file);
    fputs(tail, t->file);
    if (t->end >= 0 && fflush(t->file) == 0 && !ferror(t->file)) return DCP_OK;
    const int code = errno;
    fclose(t->file);
    t->file = NULL;
    t->has_failed = true;
    return core_fail(err, DCP_ERR_IO, "trace: cannot write: %s", strerror(code));
}

/* Refuses an existing file that is not a trace, so a mistyped name does not overwrite anything
 * else. */
int report_trace_check(const char *path, dcp_error *err) {
    char start[30] = "";
    struct stat st;
    FILE *file = fopen(path, "re");
    if (!file) return DCP_OK; /* opening it for writing will report the reason */
    const size_t n = fread(start, 1, sizeof start, file);
    const bool regular = fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode);
    fclose(file);
    if (regular && (n == 0 || (n == sizeof start && !memcmp(start, head, n)))) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "--trace: %s exists and is not a trace, so it is not replaced", path);
}

static int make_file(report_trace *t, const char *path, dcp_error *err) {
    t->offsets = calloc((size_t)t->world, sizeof *t->offsets);
    t->others = malloc(t->room * sizeof *t->others);
    if (!t->offsets || !t->others) return core_fail_memory(err, t->room * sizeof *t->others);
    const int status = report_trace_check(path, err);
    if (status != DCP_OK) return status;
    t->file = fopen(path, "we");
    if (!t->file) {
        const int code = errno;
        return core_fail(err, program_output_is_wrong(code) ? DCP_ERR_ARG : DCP_ERR_IO,
                         "--trace: cannot write %s: %s", path, strerror(code));
    }
    fputs(head, t->file);
    t->is_empty = true;
    for (int r = 0; r < t->world; r++) name_rank(t, r);
    return put_tail(t, err);
}

int report_trace_open(const char *path, MPI_Comm comm, size_t room, double begin,
                      report_trace **out, dcp_error *err) {
    report_trace *t = calloc(1, sizeof *t);
    if (ranks_agree(comm, t ? DCP_OK : core_fail_memory(err, sizeof *t), err) != DCP_OK) {
        free(t);
        return err->status;
    }
    t->room = room;
    t->origin = begin;
    MPI_Comm_dup(comm, &t->comm);
    MPI_Comm_rank(comm, &t->rank);
    MPI_Comm_size(comm, &t->world);
    const int status = ranks_agree(comm, t->rank == 0 ? make_file(t, path, err) : DCP_OK, err);
    if (status != DCP_OK) {
        report_trace_close(t);
        return status;
    }
    for (int r = 1; r < t->world && t->rank == 0; r++) t->offsets[r] = compare_clocks(t, r);
    if (t->rank != 0) compare_clocks(t, t->rank);
    *out = t;
    return DCP_OK;
}

static void put_events(report_trace *t, int rank, const timeline_event *events, size_t n) {
    for (size_t i = 0; i < n && t->file; i++) put_event(t, rank, &events[i]);
}

static void take_events(report_trace *t, int rank) {
    MPI_Status from;
    int bytes;
    MPI_Recv(t->others, (int)(t->room * sizeof *t->others), MPI_BYTE, rank, TAG_EVENTS, t->comm,
             &from);
    MPI_Get_count(&from, MPI_BYTE, &bytes);
    put_events(t, rank, t->others, (size_t)bytes / sizeof *t->others);
}

int report_trace_flush(report_trace *t, timeline *tl, dcp_error *err) {
    int status = DCP_OK;
    if (t->rank != 0) {
        MPI_Send(tl->events, (int)(tl->n * sizeof *tl->events), MPI_BYTE, 0, TAG_EVENTS, t->comm);
    } else {
        if (t->file) fseek(t->file, t->end, SEEK_SET);
        put_events(t, 0, tl->events, tl->n);
        for (int r = 1; r < t->world; r++) take_events(t, r);
        status = put_tail(t, err);
    }
    timeline_clear(tl);
    return status;
}

uint64_t report_trace_dropped(const report_trace *t, const timeline *tl) {
    uint64_t all = 0;
    MPI_Reduce(&tl->dropped, &all, 1, MPI_UINT64_T, MPI_SUM, 0, t->comm);
    return all;
}

bool report_trace_is_complete(const report_trace *t) { return !t || !t->has_failed; }

void report_trace_close(report_trace *t) {
    if (!t) return;
    if (t->file) fclose(t->file);
    MPI_Comm_free(&t->comm);
    free(t->others);
    free(t->offsets);
    free(t);
}
