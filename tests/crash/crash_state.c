/* What the crash tests run, with or without mpirun:
 *
 *   crash_state save DIR STEP [WORDS]   saves a state whose content is a function of STEP
 *   crash_state check DIR [WORDS]       loads the newest step, compares it with its expected
 *                                       content, verifies every byte, and prints the step
 *   crash_state next DIR [WORDS]        does that, verifies all other steps as well, then saves the
 *                                       step after it and checks that
 *   crash_state hold DIR STEP [WORDS]   opens that step, prints "held", waits until its input ends,
 *                                       then loads the step and compares it
 *
 * WORDS, in any order:
 *
 *   sharded, mpio   layout and engine
 *   few       a dozen tensors, half as large as all
 *   private   rank R's directory is DIR/node-R; then steps are not verified as a whole
 *   redundancy=SPEC   private, with that; `next` rebuilds what is lost before it loads
 *   async     in the background of the caller, whose memory changes after the fence
 *   new       other content for that step; then check prints "STEP new"
 *   frozen    some tensors always have the same content
 *   earlier=N the N previous steps are saved first
 *   replace, take_over, keep=N, back=N   options of the store, and dcp_store_continue_from
 *   room      dcp_save_options.make_room
 *   remove    does not save last, but removes that step (dcp_step_remove)
 *   again     if the save fails, it must leave nothing behind and an older step must load on one
 *             rank; then the save is repeated at once, which must work
 *
 * Exit status: 0; 1 if the content is a mix or damaged or something is left over; 3 if the library
 * reported a failure; 4 if it did, but the repeated save succeeded. */
#include <dirent.h>

#include "support/scratch.h"

#define NEW 100   /* added to the step: the salt of `new` content */
#define FROZEN 99 /* the salt of frozen tensors */

typedef struct wish {
    char dir[PATH_MAX]; /* this rank's */
    char domain[32];    /* and each is a failure domain */
    uint64_t step, salt, back, earlier;
    dcp_store_options store;
    dcp_save_options how;
    int async, again, few, frozen, remove;
} wish;

static int report(const scratch *s, const dcp_error *err) {
    if (s->rank == 0) fprintf(stderr, "status %d: %s\n", err->status, err->message);
    return 3;
}

static void log_line(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx, (void)level;
    fprintf(stderr, "log: %s\n", line);
}

/* The largest of the ranks' values, for what only one rank finds. */
static int agreed(const scratch *s, int value) {
    if (s->size > 1) MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

static void make_content(given *g, const wish *w, uint64_t salt, int frozen) {
    void (*make)(given *, uint64_t) = w->few ? given_make_few : given_make;
    given other;
    make(g, salt);
    if (!frozen) return;
    make(&other, FROZEN);
    for (size_t t = 1; t < GIVEN_TENSORS; t += 2) {
        unsigned char *data = g->data[t];
        g->data[t] = other.data[t];
        other.data[t] = data;
    }
    given_free(&other);
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
    snprintf(json, sizeof json, "{\"salt\":%d,\"frozen\":%d}", (int)w->salt, w->frozen);
    make_content(&g, w, w->salt, w->frozen);
    held_make(&h, &g, w->few ? FEW_ROWS : ROWS, s->rank, s->size, 1);
    int status = w->async ? save_beside(store, w, &h, &g, json, err)
                          : dcp_save(store, w->step, h.state, json, &w->how, NULL, err);
    held_free(&h);
    given_free(&g);
    return status;
}

typedef struct found {
    uint64_t step, salt;
} found;

static int open_newest(dcp_comm *comm, const wish *w, dcp_checkpoint **ckpt, dcp_error *err) {
    return w->store.private_dirs ? dcp_checkpoint_open_private(comm, w->dir, ckpt, err)
                                 : dcp_checkpoint_open(comm, w->dir, ckpt, err);
}

/* Loads the open step, and compares it with its expected content. */
static int load_open(const scratch *s, const wish *w, dcp_checkpoint *ckpt, found *f) {
    given g;
    held h;
    dcp_error err = {0};
    const char *salt = strstr(dcp_checkpoint_json(ckpt), "\"salt\":");
    CHECK(salt);
    *f = (found){dcp_checkpoint_step(ckpt), strtoull(salt + 7, NULL, 10)};
    make_content(&g, w, f->salt, strstr(dcp_checkpoint_json(ckpt), "\"frozen\":1") != NULL);
    held_make(&h, &g, w->few ? FEW_COLUMNS : COLUMNS, s->rank, s->size, 0);
    if (dcp_load(ckpt, h.state, NULL, &err)) return report(s, &err);
    int bad = !held_is_given(&h, &g);
    held_free(&h);
    given_free(&g);
    return agreed(s, bad);
}

static int load_newest(const scratch *s, const wish *w, found *f) {
    dcp_checkpoint *ckpt;
    dcp_error err = {0};
    if (open_newest(s->comm, w, &ckpt, &err)) return report(s, &err);
    int bad = load_open(s, w, ckpt, f);
    if (s->rank == 0 && !w->store.private_dirs && dcp_verify(dcp_checkpoint_path(ckpt), NULL, &err))
        bad = report(s, &err);
    dcp_checkpoint_close(ckpt);
    return agreed(s, bad);
}

static int hold(const scratch *s, const wish *w) {
    found f;
    wish one = *w;
    dcp_checkpoint *ckpt;
    dcp_error err = {0};
    snprintf(one.dir, sizeof one.dir, "%.*s/step-%08d", PATH_MAX - 32, w->dir, (int)w->step);
    if (open_newest(s->comm, &one, &ckpt, &err)) return report(s, &err);
    if (s->rank == 0) {
        puts("held");
        fflush(stdout);
        while (getchar() != EOF) continue;
    }
    agreed(s, 0); /* the others wait for it */
    int bad = load_open(s, &one, ckpt, &f);
    dcp_checkpoint_close(ckpt);
    return bad ? bad : agreed(s, f.salt != w->step);
}

static int check(const scratch *s, const wish *w, found *f) {
    int status = load_newest(s, w, f);
    if (!status && s->rank == 0) printf("%d%s\n", (int)f->step, f->salt == f->step ? "" : " new");
    return status;
}

/* Checks that every complete step in the directory is intact. */
static int check_steps(const scratch *s, const char *dir) {
    char path[PATH_MAX + sizeof((dcp_step *)0)->name];
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

/* Checks that a failed save left only an older step. It is loaded by one rank, or by those that saw
 * parts of it. */
static int check_failed_save(const scratch *s, const wish *w) {
    found f = {0};
    scratch alone = {.size = 1, .comm = s->self};
    int leads = s->rank == 0 || w->store.private_dirs;
    int bad = agreed(s, leads && has_left_overs(w->dir));
    if (!bad && leads) bad = load_newest(w->store.private_dirs ? s : &alone, w, &f);
    bad = agreed(s, bad);
    if (!bad && leads && !w->remove && f.salt == w->salt) {
        fprintf(stderr, "the save failed, but its step is there\n");
        bad = 1;
    }
    return agreed(s, bad);
}

static int open_store(const scratch *s, const wish *w, dcp_store **store, dcp_error *err) {
    int status = dcp_store_open(s->comm, w->dir, &w->store, store, err);
    if (!status && w->back) status = dcp_store_continue_from(*store, w->back, err);
    return status;
}

static int save_earlier(const scratch *s, dcp_store *store, const wish *w, dcp_error *err) {
    wish earlier = *w;
    int status = 0;
    for (uint64_t step = w->step - w->earlier; step < w->step && !status; step++) {
        earlier.step = earlier.salt = step;
        status = save_once(s, store, &earlier, err);
    }
    return status;
}

/* The last action: the save, or the removal of the step. */
static int act(const scratch *s, dcp_store *store, const wish *w, dcp_error *err) {
    return w->remove ? dcp_step_remove(store, w->step, err) : save_once(s, store, w, err);
}

/* After a removal that failed, the step may already be gone. */
static int act_again(const scratch *s, dcp_store *store, const wish *w, dcp_error *err) {
    const int status = act(s, store, w, err);
    return w->remove && status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

static int save(const scratch *s, const wish *w) {
    dcp_store *store = NULL;
    dcp_error err = {0};
    int status = open_store(s, w, &store, &err);
    if (!status && w->earlier) status = save_earlier(s, store, w, &err);
    if (!status) status = act(s, store, w, &err);
    if (status) status = report(s, &err);
    if (status && w->again) {
        status = check_failed_save(s, w) ? 1 : 0;
        if (!status && !store) status = open_store(s, w, &store, &err);
        if (!status) status = act_again(s, store, w, &err) ? report(s, &err) : 4;
    }
    dcp_store_close(store);
    return status;
}

static int rebuild(const scratch *s, const wish *w) {
    dcp_store *store = NULL;
    dcp_error err = {0};
    uint64_t step;
    int status = open_store(s, w, &store, &err);
    if (!status) status = dcp_store_rebuild(store, 1, &step, NULL, &err);
    if (status) status = report(s, &err);
    dcp_store_close(store);
    return status;
}

/* What a start does before it loads: a step that had lost its name for a moment has it again. */
static int open_and_close(const scratch *s, const wish *w) {
    dcp_store *store = NULL;
    dcp_error err = {0};
    int status = open_store(s, w, &store, &err) ? report(s, &err) : 0;
    dcp_store_close(store);
    return status;
}

static int next(const scratch *s, wish *w) {
    found f;
    int status = w->store.redundancy ? rebuild(s, w) : open_and_close(s, w);
    if (!status) status = check(s, w, &f);
    if (!status && !w->store.private_dirs) status = check_steps(s, w->dir);
    if (status) return status;
    w->step = w->salt = f.step + 1;
    status = save(s, w);
    return status ? status : check(s, w, &f);
}

static uint64_t number_in(const char *word, const char *name) {
    size_t n = strlen(name);
    return strncmp(word, name, n) ? 0 : strtoull(word + n, NULL, 10);
}

static void take_word(wish *w, const char *word) {
    if (!strcmp(word, "sharded")) w->how.layout = DCP_LAYOUT_SHARDED;
    if (!strcmp(word, "mpio")) w->how.engine = DCP_ENGINE_MPIO;
    if (!strcmp(word, "private")) w->store.private_dirs = 1;
    if (!strncmp(word, "redundancy=", 11)) w->store.redundancy = word + 11;
    if (!strcmp(word, "few")) w->few = 1;
    if (!strcmp(word, "frozen")) w->frozen = 1;
    if (!strcmp(word, "async")) w->async = 1;
    if (!strcmp(word, "again")) w->again = 1;
    if (!strcmp(word, "room")) w->how.make_room = 1;
    if (!strcmp(word, "new")) w->salt = w->step + NEW;
    if (!strcmp(word, "replace")) w->store.replace = 1;
    if (!strcmp(word, "remove")) w->remove = 1;
    if (!strcmp(word, "take_over")) w->store.take_over = 1;
    if (number_in(word, "keep=")) w->store.keep = (uint32_t)number_in(word, "keep=");
    if (number_in(word, "earlier=")) w->earlier = number_in(word, "earlier=");
    if (number_in(word, "back=")) w->back = number_in(word, "back=");
}

static int takes_step(const char *command) {
    return !strcmp(command, "save") || !strcmp(command, "hold");
}

static int run(const scratch *s, int argc, char **argv) {
    found f;
    wish w = {.store = {.size = sizeof w.store, .log = log_line}, .how = DCP_SAVE_OPTIONS_INIT};
    int words = 3;
    if (takes_step(argv[1])) w.step = w.salt = strtoull(argv[words++], NULL, 10);
    for (int i = words; i < argc; i++) take_word(&w, argv[i]);
    if (w.store.redundancy) w.store.private_dirs = 1;
    if (w.store.private_dirs) w.how.layout = DCP_LAYOUT_SHARDED;
    if (w.store.private_dirs) {
        snprintf(w.dir, sizeof w.dir, "%s/node-%d", argv[2], s->rank);
        snprintf(w.domain, sizeof w.domain, "node-%d", s->rank);
        w.store.domain = w.domain;
    } else {
        snprintf(w.dir, sizeof w.dir, "%s", argv[2]);
    }
    if (!strcmp(argv[1], "check")) return check(s, &w, &f);
    if (!strcmp(argv[1], "hold")) return hold(s, &w);
    return !strcmp(argv[1], "next") ? next(s, &w) : save(s, &w);
}

int main(int argc, char **argv) {
    int launched = getenv("OMPI_COMM_WORLD_SIZE") != NULL, level;
    scratch s = {.size = 1};
    if (argc < 3 || (takes_step(argv[1]) && argc < 4)) return 2;
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
