/* What the crash tests run, with or without mpirun:
 *   crash_state save DIR STEP [WORDS]   saves a state whose content is a function of STEP
 *   crash_state check DIR               loads the newest step, compares it with what its content
 *                                       must be, verifies every byte, and prints the step
 *   crash_state next DIR                does that, verifies all other steps as well, then saves the
 *                                       step after it and checks that
 * WORDS, in any order:
 *   sharded   the layout
 *   mpio      the engine
 *   async     beside the caller, whose memory changes after the fence
 *   new       other content for that step; check prints "STEP new" then
 *   replace, keep=N, back=N   options of the store, and dcp_store_continue_from
 *   again     where the save fails, nothing of it may be left and an older step must load on one
 *             rank; then the save is done again at once, which must work
 * Exit status: 0, 1 where the content is a mix or damaged or something is left, 3 where the library
 * reported a failure, 4 where it did but saved when it was asked again. */
#include <dirent.h>

#include "scratch.h"

#define NEW 100 /* added to the step: the salt of `new` content */

typedef struct wish {
    const char *dir;
    uint64_t step, salt, back;
    dcp_store_options store;
    dcp_save_options how;
    int async, again;
} wish;

static int report(const scratch *s, const dcp_error *err) {
    if (s->rank == 0) fprintf(stderr, "status %d: %s\n", err->status, err->message);
    return 3;
}

static void log_line(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx, (void)level;
    fprintf(stderr, "log: %s\n", line);
}

/* The largest of the ranks' values, for what one rank finds alone. */
static int agreed(const scratch *s, int value) {
    if (s->size > 1) MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

static void scribble(const held *h, const given *g) {
    for (size_t i = 0; i < h->n; i++) {
        const held_box *b = &h->boxes[i];
        const dcp_tensor *t = &g->tensors[b->tensor];
        memset(b->data, 0xdd, dcp_box_elems(&b->box, t->ndim) * dcp_dtype_bytes(t->dtype));
    }
}

static int save_beside(dcp_store *store, const wish *w, const held *h, const given *g,
                       const char *json, dcp_error *err) {
    dcp_saving *saving;
    int status = dcp_save_async(store, w->step, h->state, json, &w->how, &saving, err);
    if (status) return status;
    dcp_save_fence(saving);
    scribble(h, g);
    return dcp_save_wait(saving, NULL, err);
}

static int save_once(const scratch *s, dcp_store *store, const wish *w, dcp_error *err) {
    given g;
    held h;
    char json[64];
    snprintf(json, sizeof json, "{\"salt\":%d}", (int)w->salt);
    given_make(&g, w->salt);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    int status = w->async ? save_beside(store, w, &h, &g, json, err)
                          : dcp_save(store, w->step, h.state, json, &w->how, NULL, err);
    held_free(&h);
    given_free(&g);
    return status;
}

typedef struct found {
    uint64_t step, salt;
} found;

static int load_newest(const scratch *s, const char *dir, found *f) {
    given g;
    held h;
    dcp_checkpoint *ckpt;
    dcp_error err = {0};
    if (dcp_checkpoint_open(s->comm, dir, &ckpt, &err)) return report(s, &err);
    const char *salt = strstr(dcp_checkpoint_json(ckpt), "\"salt\":");
    CHECK(salt);
    *f = (found){dcp_checkpoint_step(ckpt), strtoull(salt + 7, NULL, 10)};
    given_make(&g, f->salt);
    held_make(&h, &g, COLUMNS, s->rank, s->size, 0);
    if (dcp_load(ckpt, h.state, NULL, &err)) return report(s, &err);
    int bad = !held_is_given(&h, &g);
    if (s->rank == 0 && dcp_verify(dcp_checkpoint_path(ckpt), NULL, &err)) bad = report(s, &err);
    held_free(&h);
    given_free(&g);
    dcp_checkpoint_close(ckpt);
    return agreed(s, bad);
}

static int check(const scratch *s, const char *dir, found *f) {
    int status = load_newest(s, dir, f);
    if (!status && s->rank == 0) printf("%d%s\n", (int)f->step, f->salt == f->step ? "" : " new");
    return status;
}

/* Every complete step in the directory is intact. */
static int check_steps(const scratch *s, const char *dir) {
    char path[PATH_MAX];
    dcp_step *steps = NULL;
    dcp_error err = {0};
    size_t n = 0;
    int bad = 0;
    if (s->rank == 0) CHECK(!dcp_steps_list(dir, &steps, &n, NULL));
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, steps[i].name);
        if (steps[i].kind == DCP_STEP_COMPLETE && dcp_verify(path, NULL, &err))
            bad = report(s, &err);
    }
    free(steps);
    return agreed(s, bad);
}

static int has_left_overs(const char *dir) {
    int left = 0;
    DIR *stream = opendir(dir);
    CHECK(stream);
    for (struct dirent *e; (e = readdir(stream));)
        if (!strncmp(e->d_name, ".tmp", 4) || !strncmp(e->d_name, ".trash", 6)) {
            fprintf(stderr, "left behind by a save that failed: %s\n", e->d_name);
            left = 1;
        }
    closedir(stream);
    return left;
}

/* Rank 0, alone: what a failed save left is an older step and nothing else. */
static int check_failed_save(const scratch *s, const wish *w) {
    found f;
    scratch alone = {.size = 1, .comm = s->self};
    if (has_left_overs(w->dir)) return 1;
    if (load_newest(&alone, w->dir, &f)) return 1;
    if (f.salt != w->salt) return 0;
    fprintf(stderr, "the save failed, but its step is there\n");
    return 1;
}

static int open_store(const scratch *s, const wish *w, dcp_store **store, dcp_error *err) {
    int status = dcp_store_open(s->comm, w->dir, &w->store, store, err);
    if (!status && w->back) status = dcp_store_continue_from(*store, w->back, err);
    return status;
}

static int save(const scratch *s, const wish *w) {
    dcp_store *store = NULL;
    dcp_error err = {0};
    int status = open_store(s, w, &store, &err);
    if (!status) status = save_once(s, store, w, &err);
    if (status) status = report(s, &err);
    if (status && w->again) {
        status = agreed(s, s->rank == 0 ? check_failed_save(s, w) : 0);
        if (!status && !store) status = open_store(s, w, &store, &err);
        if (!status) status = save_once(s, store, w, &err) ? report(s, &err) : 4;
    }
    dcp_store_close(store);
    return status;
}

static int next(const scratch *s, const char *dir) {
    found f;
    int status = check(s, dir, &f);
    if (!status) status = check_steps(s, dir);
    if (status) return status;
    wish w = {.dir = dir, .step = f.step + 1, .salt = f.step + 1, .store = {.log = log_line}};
    status = save(s, &w);
    return status ? status : check(s, dir, &f);
}

static uint64_t number_in(const char *word, const char *name) {
    size_t n = strlen(name);
    return strncmp(word, name, n) ? 0 : strtoull(word + n, NULL, 10);
}

static int run(const scratch *s, int argc, char **argv) {
    found f;
    if (!strcmp(argv[1], "check")) return check(s, argv[2], &f);
    if (!strcmp(argv[1], "next")) return next(s, argv[2]);
    if (argc < 4) return 2;
    wish w = {.dir = argv[2], .step = strtoull(argv[3], NULL, 10), .store = {.log = log_line}};
    w.salt = w.step;
    for (int i = 4; i < argc; i++) {
        const char *word = argv[i];
        if (!strcmp(word, "sharded")) w.how.layout = DCP_LAYOUT_SHARDED;
        if (!strcmp(word, "mpio")) w.how.engine = DCP_ENGINE_MPIO;
        if (!strcmp(word, "async")) w.async = 1;
        if (!strcmp(word, "again")) w.again = 1;
        if (!strcmp(word, "new")) w.salt = w.step + NEW;
        if (!strcmp(word, "replace")) w.store.replace = 1;
        if (number_in(word, "keep=")) w.store.keep = (uint32_t)number_in(word, "keep=");
        if (number_in(word, "back=")) w.back = number_in(word, "back=");
    }
    return save(s, &w);
}

int main(int argc, char **argv) {
    int launched = getenv("OMPI_COMM_WORLD_SIZE") != NULL, level;
    scratch s = {.size = 1};
    if (argc < 3) return 2;
    if (launched) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    CHECK(dcp_comm_self(&s.self, NULL) == DCP_OK);
    if (launched)
        CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &s.comm, NULL) == DCP_OK);
    else
        CHECK(dcp_comm_self(&s.comm, NULL) == DCP_OK);
    s.rank = dcp_comm_rank(s.comm);
    s.size = dcp_comm_size(s.comm);
    int status = run(&s, argc, argv);
    dcp_comm_destroy(s.comm);
    dcp_comm_destroy(s.self);
    if (launched) MPI_Finalize();
    return status;
}
