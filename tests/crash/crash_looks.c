/* One call fails, once, while a program looks at stores: a system call on their files with EIO,
 * EACCES, EMFILE, ESTALE or ENOMEM, or one allocation by the library. Whichever call it is, the
 * program gets the right step or an error of that call, never another step. Nothing intact is
 * reported as damaged, nothing is lost on disk, and the next start, in which nothing fails, loads
 * the right step.
 *
 *     crash_looks DIR [EVERY [PATTERN]]
 *
 * DIR is created, and removed. In each scene every EVERY-th call is made to fail (default: 1).
 * PATTERN (fnmatch) selects scenes by their names. Exit status 0: all cases end as they must. */
#include <errno.h>
#include <fnmatch.h>
#include <ftw.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "dcp/dcp.h"
#include "dcp/rewrite.h"
#include "dcp/tiers.h"
#include "refuse.h"
#include "support/table.h"

enum { OLD = 100, RIGHT = 200, NEXT = 300, ROWS = 600, PATH = 512 };

/* How steps are stored. */
typedef enum stores { GLOBAL, SHARDED, PARTNER, PARITY, LIST_PARTNER, LIST_PARITY, STORES } stores;

static const char *const stores_names[] = {"global", "sharded",      "partner",
                                           "rs",     "list-partner", "list-rs"};

static char root[PATH / 2], pristine[PATH / 2], work[PATH / 2];

/* Returns the kind of the list's first store. */
static stores first_store(stores kind) {
    return kind == LIST_PARTNER ? PARTNER : kind == LIST_PARITY ? PARITY : kind;
}

/* What a rank reports to its parent. */
typedef struct outcome {
    int status;
    uint64_t step; /* the step that was loaded, or found to be the newest; 0: none */
    int is_wrong;  /* the content is wrong, or something else that must not be */
    long calls;
    char message[1200], what[1024];
} outcome;

/* A rank of a case. */
typedef struct rank {
    int number, n;
    dcp_comm *comm;
    stores kind;
    dcp_tier list[2];
    char paths[2][PATH];
    size_t n_tiers;
    float data[ROWS];
    dcp_state *state;
    outcome *out;
} rank;

static float element(uint64_t step, uint64_t row) { return (float)(step * 1000 + row); }

static void fill(rank *r, uint64_t step) {
    const uint64_t first = ROWS * (uint64_t)r->number / (uint64_t)r->n;
    for (uint64_t i = 0; i < ROWS; i++) r->data[i] = step ? element(step, first + i) : -1;
}

static int holds(const rank *r, uint64_t step) {
    const uint64_t first = ROWS * (uint64_t)r->number / (uint64_t)r->n,
                   end = ROWS * ((uint64_t)r->number + 1) / (uint64_t)r->n;
    for (uint64_t i = first; i < end; i++)
        if (r->data[i - first] != element(step, i)) return 0;
    return 1;
}

static void make_state(rank *r) {
    const dcp_tensor t = {.path = "/model/weight", .dtype = DCP_F32, .ndim = 1, .shape = {ROWS}};
    dcp_box box = {.start = {ROWS * (uint64_t)r->number / (uint64_t)r->n}};
    box.count[0] = ROWS * ((uint64_t)r->number + 1) / (uint64_t)r->n - box.start[0];
    SUCCEEDS(dcp_state_create(&r->state, err));
    SUCCEEDS(dcp_state_add(r->state, &t, &box, r->data, err));
}

static dcp_tier tier_of(stores kind, char *path, const char *dir) {
    dcp_tier t = DCP_TIER_INIT;
    t.is_private = kind == PARTNER || kind == PARITY;
    snprintf(path, PATH, t.is_private ? "%s/%s-{rank}" : "%s/%s", dir, stores_names[kind]);
    t.path = path;
    t.every = 1;
    t.keep = 5;
    t.keep_seconds = 1; /* so that retention reads about.json */
    t.redundancy = kind == PARTNER ? "partner" : kind == PARITY ? "rs(1)" : NULL;
    t.domain = t.is_private ? "{rank}" : NULL;
    t.layout = kind == GLOBAL ? DCP_LAYOUT_GLOBAL : DCP_LAYOUT_SHARDED;
    return t;
}

static void make_list(rank *r, stores kind, const char *dir) {
    const stores first = first_store(kind);
    r->kind = kind;
    r->list[0] = tier_of(first, r->paths[0], dir);
    r->n_tiers = 1;
    if (first == kind) return;
    r->list[1] = tier_of(GLOBAL, r->paths[1], dir);
    r->list[1].every = RIGHT; /* it lacks step NEXT */
    r->n_tiers = 2;
}

static int open_tiers(rank *r, dcp_tiers **out, dcp_error *err) {
    dcp_tiers_options o = DCP_TIERS_OPTIONS_INIT;
    return dcp_tiers_open(r->comm, r->list, r->n_tiers, &o, out, err);
}

static int load_one(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    rank *r = ctx;
    fill(r, 0);
    return dcp_load(ckpt, r->state, NULL, err);
}

/* Notes how an action ended. */
static void note(rank *r, int status, uint64_t step, const dcp_error *err) {
    r->out->status = status;
    r->out->step = status ? 0 : step;
    snprintf(r->out->message, sizeof r->out->message, "%s", status ? err->message : "");
}

/* Actions, in each of which something fails. */
static void load(rank *r) {
    dcp_tiers *tiers;
    dcp_error e = {0};
    uint64_t step = 0;
    int status = open_tiers(r, &tiers, &e);
    if (!status) {
        status = dcp_tiers_load(tiers, load_one, r, &step, &e);
        dcp_tiers_close(tiers);
    }
    if (!status) r->out->is_wrong = !holds(r, step);
    note(r, status, step, &e);
}

/* Without opening stores, as dcp_checkpoint_open does. */
static void read_newest(rank *r) {
    dcp_checkpoint *ckpt = NULL;
    dcp_error e = {0};
    char dir[PATH];
    uint64_t step = 0;
    const int is_private = r->list[0].is_private;
    snprintf(dir, sizeof dir, is_private ? "%s/%s-%d" : "%s/%s", work,
             stores_names[first_store(r->kind)], r->number);
    int status =
        (is_private ? dcp_checkpoint_open_private : dcp_checkpoint_open)(r->comm, dir, &ckpt, &e);
    if (!status) {
        step = dcp_checkpoint_step(ckpt);
        status = load_one(r, ckpt, &e);
        if (!status) r->out->is_wrong = !holds(r, step);
        dcp_checkpoint_close(ckpt);
    }
    note(r, status, step, &e);
}

static void list_steps(rank *r) {
    dcp_tiers_step *steps = NULL;
    dcp_error e = {0};
    size_t n = 0;
    const int status = dcp_tiers_steps(r->comm, r->list, r->n_tiers, &steps, &n, &e);
    if (!status) r->out->is_wrong = n != 2 * r->n_tiers || steps[n - 1].step != OLD;
    note(r, status, n ? steps[0].step : 0, &e);
    free(steps);
}

static void step_folder(const rank *r, uint64_t step, char *path) {
    const stores first = first_store(r->kind);
    char node[16] = "";
    if (r->list[0].is_private) snprintf(node, sizeof node, "-%d", r->number);
    snprintf(path, 2 * PATH, "%s/%s%s/step-%08llu", work, stores_names[first], node,
             (unsigned long long)step);
}

/* Each rank alone verifies its own folder. */
static void verify(rank *r) {
    dcp_error e = {0};
    char path[2 * PATH];
    step_folder(r, RIGHT, path);
    note(r, dcp_verify(path, NULL, &e), RIGHT, &e);
}

/* All ranks together verify a folder that all of them see. */
static void verify_together(rank *r) {
    dcp_verify_options o = DCP_VERIFY_OPTIONS_INIT;
    dcp_error e = {0};
    char path[2 * PATH];
    step_folder(r, RIGHT, path);
    note(r, dcp_verify_with(r->comm, path, &o, &e), RIGHT, &e);
}

static void glance(rank *r) {
    dcp_glance seen = DCP_GLANCE_INIT;
    dcp_error e = {0};
    char path[2 * PATH];
    step_folder(r, RIGHT, path);
    note(r, dcp_step_glance(path, &seen, &e), RIGHT, &e);
}

/* A run that continues: opens, loads, saves. */
static void resume(rank *r) {
    dcp_tiers *tiers;
    dcp_error e = {0};
    uint64_t step = 0;
    int status = open_tiers(r, &tiers, &e);
    if (status) {
        note(r, status, 0, &e);
        return;
    }
    status = dcp_tiers_load(tiers, load_one, r, &step, &e);
    if (!status) r->out->is_wrong = !holds(r, step);
    if (!status) status = dcp_tiers_continue_from(tiers, step, &e);
    if (!status) {
        fill(r, NEXT);
        status = dcp_tiers_save(tiers, NEXT, r->state, "{\"seed\":1}", NULL, 0, NULL, &e);
    }
    dcp_tiers_close(tiers);
    note(r, status, step, &e);
}

/* Goes back on purpose: later steps are set aside, whether or not they can be looked at. */
static void go_back(rank *r) {
    dcp_tiers *tiers;
    dcp_error e = {0};
    int status = open_tiers(r, &tiers, &e);
    if (status) {
        note(r, status, 0, &e);
        return;
    }
    status = dcp_tiers_continue_from(tiers, OLD, &e);
    if (!status) {
        fill(r, OLD + 50);
        status = dcp_tiers_save(tiers, OLD + 50, r->state, "{\"seed\":1}", NULL, 1, NULL, &e);
    }
    dcp_tiers_close(tiers);
    note(r, status, RIGHT, &e);
}

static void rewrite(rank *r) {
    dcp_store_options options = {.size = sizeof options, .replace = 1};
    dcp_checkpoint *ckpt = NULL;
    dcp_store *store = NULL;
    dcp_error e = {0};
    char from[PATH], to[PATH];
    snprintf(from, sizeof from, "%s/%s", work, stores_names[r->kind]);
    snprintf(to, sizeof to, "%s/rewritten", work);
    int status = dcp_checkpoint_open(r->comm, from, &ckpt, &e);
    const uint64_t step = status ? 0 : dcp_checkpoint_step(ckpt);
    if (!status) status = dcp_store_open(r->comm, to, &options, &store, &e);
    if (!status) status = dcp_rewrite(ckpt, store, NULL, NULL, &e);
    dcp_store_close(store);
    dcp_checkpoint_close(ckpt);
    note(r, status, step, &e);
}

/* What is on disk before a case. */
typedef enum before { BOTH, NAMELESS, DAMAGED } before;

typedef struct scene {
    const char *name;
    void (*act)(rank *r);
    before before;
    unsigned kinds;    /* kinds of stores, one bit each */
    uint64_t may_load; /* a step that the case may load besides RIGHT */
    int writes;        /* it changes what is on disk */
} scene;

enum {
    SHARED = 1 << GLOBAL | 1 << SHARDED,
    PRIVATE = 1 << PARTNER | 1 << PARITY,
    LISTS = 1 << LIST_PARTNER | 1 << LIST_PARITY,
    ALL = SHARED | PRIVATE | LISTS
};

static const scene scenes[] = {
    {"load", load, BOTH, ALL, 0, 0},
    {"read", read_newest, BOTH, SHARED | PRIVATE, 0, 0},
    {"list", list_steps, BOTH, ALL, 0, 0},
    {"verify", verify, BOTH, SHARED | 1 << PARTNER, 0, 0},
    {"verify-together", verify_together, BOTH, SHARED, 0, 0},
    {"glance", glance, BOTH, SHARED | 1 << PARTNER, 0, 0},
    {"resume", resume, BOTH, ALL, 0, 1},
    {"back", go_back, BOTH, SHARED | LISTS, 0, 1},
    {"rewrite", rewrite, BOTH, SHARED, 0, 1},
    {"nameless", load, NAMELESS, SHARED | 1 << PARTNER, 0, 1},
    /* in a store without redundancy, the right step is proven to be damaged */
    {"damaged", load, DAMAGED, SHARED, OLD, 0},
    {"rebuilt", load, DAMAGED, PRIVATE | LISTS, 0, 1},
};

/* What a rank does in a case; error < 0: nothing fails. */
typedef struct one_case {
    const scene *scene;
    stores kind;
    int error, hit; /* the rank at which the call fails */
    long at;
    uint64_t disk; /* trace of the disk before the case */
    outcome *out;  /* of all ranks, in shared memory */
} one_case;

static void run_rank(rank *r, const one_case *c) {
    r->out = &c->out[r->number];
    make_list(r, c->kind, work);
    make_state(r);
    const int is_hit = c->error >= 0 && r->number == c->hit;
    refuse_begin(work, is_hit ? c->error : 0, is_hit ? c->at : 0);
    c->scene->act(r);
    r->out->calls = refuse_end();
    snprintf(r->out->what, sizeof r->out->what, "%s", refuse_what());
    dcp_state_destroy(r->state);
}

/* The table's own memory is not the library's. */
#define QUIET(type, name, params, args)                                                            \
    static type quiet_##name params {                                                              \
        refuse_pause(1);                                                                           \
        const type status = table_##name args;                                                     \
        refuse_pause(0);                                                                           \
        return status;                                                                             \
    }
QUIET(int, alltoall,
      (void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
       const uint64_t *recv_bytes),
      (ctx, send, send_bytes, recv, recv_bytes))
QUIET(int, duplicate, (void *ctx, void **out), (ctx, out))

static void run_seat(table_seat *seat, void *the_case) {
    const dcp_comm_ops ops = {.size = sizeof ops,
                              .broadcast = table_broadcast,
                              .allreduce = table_allreduce,
                              .gather = table_gather,
                              .alltoall = quiet_alltoall,
                              .barrier = table_barrier,
                              .duplicate = quiet_duplicate,
                              .free = table_free,
                              .threads = 1};
    rank r = {.number = seat->rank, .n = TABLE_RANKS};
    alarm(60); /* ends a rank that hangs */
    SUCCEEDS(dcp_comm_from_ops(&ops, seat, seat->rank, TABLE_RANKS, &r.comm, err));
    run_rank(&r, the_case);
    dcp_comm_destroy(r.comm);
}

static int run_alone(const one_case *c) {
    const pid_t pid = fork();
    int status = 0;
    NEED(pid >= 0);
    if (pid) return waitpid(pid, &status, 0) != pid || status;
    rank r = {.number = 0, .n = 1};
    alarm(60);
    SUCCEEDS(dcp_comm_self(&r.comm, err));
    run_rank(&r, c);
    dcp_comm_destroy(r.comm);
    exit(0);
}

static int n_ranks(stores kind) { return kind == GLOBAL ? 1 : TABLE_RANKS; }

/* Returns 0 if all ranks ended normally. */
static int run_case(one_case *c) {
    memset(c->out, 0, TABLE_RANKS * sizeof *c->out);
    return n_ranks(c->kind) == 1 ? run_alone(c) : table_launch(run_seat, c);
}

DCP_PRINTF(1, 2) static void shell(const char *fmt, ...) {
    char command[8 * PATH];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    NEED(!system(command));
}

static uint64_t traces;

/* Adds every name, file and time of change, except for what a writer leaves of itself. */
static int add_trace(const char *path, const struct stat *st, int type, struct FTW *at) {
    const char *name = path + at->base;
    uint64_t trace = 14695981039346656037u;
    (void)type;
    if (S_ISDIR(st->st_mode) || strcmp(name, ".lock") == 0) return 0;
    const uint64_t words[] = {st->st_ino, (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
                              (uint64_t)st->st_mtim.tv_nsec};
    for (const char *c = path; *c; c++) trace = (trace ^ (unsigned char)*c) * 1099511628211u;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        trace = (trace ^ words[i]) * 1099511628211u;
    traces += trace;
    return 0;
}

static uint64_t trace_disk(void) {
    traces = 0;
    NEED(!nftw(work, add_trace, 16, FTW_PHYS));
    return traces;
}

/* Saves the two steps, as a run without failures does. */
static void save_both(rank *r) {
    dcp_tiers *tiers = NULL;
    SUCCEEDS(open_tiers(r, &tiers, err));
    for (uint64_t step = OLD; step <= RIGHT; step += RIGHT - OLD) {
        fill(r, step);
        SUCCEEDS(dcp_tiers_save(tiers, step, r->state,
                                "{\"seed\":1,\"a_longer_key\":[0.1234567890123]}", NULL, 1, NULL,
                                err));
    }
    dcp_tiers_close(tiers);
    r->out->status = DCP_OK;
}

static void make_before(const scene *s, stores kind, one_case *c) {
    static const scene saving = {"save", save_both, BOTH, ALL, 0, 1};
    *c = (one_case){.scene = &saving, .kind = kind, .error = -1, .out = c->out};
    shell("rm -rf %s %s && mkdir -p %s", work, pristine, work);
    NEED(!run_case(c));
    const char *first = stores_names[first_store(kind)];
    if (s->before == NAMELESS)
        shell("cd %s && for d in %s*; do mkdir $d/.writer-00000000deadbeef && "
              "mv $d/step-00000200 $d/.writer-00000000deadbeef/; done",
              work, first);
    if (s->before == DAMAGED)
        shell("cd %s && f=$(ls %s*/step-00000200/s*.h5 | tail -n 1) && "
              "printf X | dd of=$f bs=1 seek=4200 conv=notrunc status=none",
              work, first);
    shell("cp -a %s %s", work, pristine);
    c->scene = s;
    c->disk = trace_disk();
}

static int fail_case(const one_case *c, const char *what, const char *more) {
    const outcome *o = &c->out[c->hit];
    fprintf(stderr, "%s-%s rank %d, call %ld (%s) fails with %s: %s %s\n", c->scene->name,
            stores_names[c->kind], c->hit, c->at, o->what,
            c->error ? strerror(c->error) : "no memory", what, more);
    return 1;
}

static int is_own_error(int status) {
    return status != DCP_ERR_CORRUPT && status != DCP_ERR_NOT_FOUND && status != DCP_ERR_MISMATCH;
}

/* Checks what the case's ranks have reported. */
static int judge_outcome(const one_case *c) {
    for (int r = 0; r < n_ranks(c->kind); r++) {
        const outcome *o = &c->out[r];
        if (o->is_wrong) return fail_case(c, "wrong content", "");
        if (o->status && !is_own_error(o->status))
            return fail_case(c, "called damaged:", o->message);
        if (!o->status && o->step != RIGHT &&
            (!c->scene->may_load || o->step != c->scene->may_load))
            return fail_case(c, "another step is taken", "");
    }
    return 0;
}

/* Checks a later start, in which nothing fails. */
static int judge_next(const one_case *c) {
    static const scene next = {"next", load, BOTH, ALL, 0, 1};
    static outcome *out;
    if (!out)
        out = mmap(NULL, TABLE_RANKS * sizeof *out, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    one_case again = {.scene = &next, .kind = c->kind, .error = -1, .out = out};
    if (run_case(&again)) return fail_case(c, "the next start ends", "");
    for (int r = 0; r < n_ranks(c->kind); r++) {
        if (out[r].status) return fail_case(c, "the next start fails:", out[r].message);
        const uint64_t step = out[r].step;
        const int is_back = c->scene->act == go_back, is_new = c->scene->act == resume;
        const int is_right = step == RIGHT || (is_new && step == NEXT) ||
                             (is_back && (step == OLD + 50 || step == OLD)) ||
                             step == c->scene->may_load;
        if (out[r].is_wrong || !is_right)
            return fail_case(c, "the next start loads another step", "");
    }
    return 0;
}

/* Checks that the step is in each store, under its name, or set aside if the case may do that. */
static int judge_disk(const one_case *c) {
    char command[8 * PATH];
    const int aside = c->scene->act == go_back;
    if (!c->scene->writes)
        return trace_disk() == c->disk ? 0 : fail_case(c, "what is on disk has changed", "");
    snprintf(command, sizeof command,
             "cd %s && for d in %s* %s; do [ -d \"$d\" ] || continue; [ -d $d/step-00000200 ] || "
             "[ %d = 1 -a -d $d/.abandoned-step-00000200 ] || exit 1; done",
             work, stores_names[first_store(c->kind)], c->kind >= LIST_PARTNER ? "global" : "",
             aside);
    return system(command) ? fail_case(c, "a store has lost the step", "") : 0;
}

typedef struct totals {
    long cases, right, errors, failed;
} totals;

static void try_case(one_case *c, totals *t) {
    if (c->scene->writes) shell("rm -rf %s && cp -a %s %s", work, pristine, work);
    const int died = run_case(c);
    int failed = died ? fail_case(c, "a rank died", "") : judge_outcome(c);
    if (!failed && c->scene->writes) failed = judge_next(c);
    if (!failed) failed = judge_disk(c);
    t->cases++;
    t->failed += failed;
    t->errors += !failed && c->out[c->hit].status;
    t->right += !failed && !c->out[c->hit].status;
    if (!failed || c->scene->writes) return;
    shell("rm -rf %s && cp -a %s %s", work, pristine, work);
    c->disk = trace_disk();
}

static totals run_scene(const scene *s, stores kind, int every, one_case *c) {
    static const int errors[] = {EIO, EACCES, EMFILE, ESTALE, ENOMEM, 0};
    totals t = {0};
    long calls[TABLE_RANKS];
    make_before(s, kind, c);
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
        for (c->hit = 0; c->hit < n_ranks(kind); c->hit++) {
            c->error = errors[e];
            c->at = 0;
            if (e == 0 || !c->error) { /* the calls are the same for every errno */
                if (s->writes) shell("rm -rf %s && cp -a %s %s", work, pristine, work);
                NEED(!run_case(c));
                calls[c->hit] = c->out[c->hit].calls;
            }
            for (c->at = 1 + (long)(e * 7 + (size_t)c->hit * 3) % every; c->at <= calls[c->hit];
                 c->at += every)
                try_case(c, &t);
        }
    return t;
}

int main(int argc, char **argv) {
    NEED(argc >= 2 && strlen(argv[1]) < PATH / 2);
    const int every = argc > 2 ? atoi(argv[2]) : 1;
    totals all = {0};
    one_case c = {.out = mmap(NULL, TABLE_RANKS * sizeof *c.out, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    NEED(every > 0 && c.out != MAP_FAILED);
    shell("mkdir -p %s", argv[1]);
    NEED(realpath(argv[1], root));
    snprintf(work, sizeof work, "%.200s/work", root);
    snprintf(pristine, sizeof pristine, "%.200s/pristine", root);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        for (stores kind = 0; kind < STORES; kind++) {
            char name[64];
            snprintf(name, sizeof name, "%s-%s", scenes[i].name, stores_names[kind]);
            if (!(scenes[i].kinds >> kind & 1)) continue;
            if (argc > 3 && fnmatch(argv[3], name, 0)) continue;
            const totals t = run_scene(&scenes[i], kind, every, &c);
            printf("%-28s %6ld cases: %6ld went on, %6ld errors, %ld failed\n", name, t.cases,
                   t.right, t.errors, t.failed);
            fflush(stdout);
            all.cases += t.cases, all.right += t.right, all.errors += t.errors;
            all.failed += t.failed;
        }
    printf("%ld cases: %ld went on, %ld errors, %ld failed\n", all.cases, all.right, all.errors,
           all.failed);
    shell("rm -rf %s", root);
    return all.failed || !all.cases;
}
