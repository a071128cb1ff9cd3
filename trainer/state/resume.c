/* Choosing and loading a start. Rank 0 lists the directory, so that all ranks try the same steps;
 * opening and loading are collective, so that all of them see the same outcome of each try. */
#include "resume.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../agree.h"
#include "../fail.h"
#include "../say.h"
#include "about.h"
#include "meta.h"

static int is_text(const char *a, const char *b) { return strcmp(a, b) == 0; }

int resume_fail_directory(int status, const dcp_error *why, dcp_error *err) {
    return trainer_fail(err, status == DCP_ERR_IO ? DCP_ERR_ARG : status, "checkpoint.dir: %s",
                        why->message);
}

int resume_expected(const config *c, int *expected, dcp_error *err) {
    dcp_step *steps;
    size_t n, complete = 0;
    *expected = !is_text(c->resume, "never") && !is_text(c->resume, "auto");
    if (*expected) return DCP_OK;
    dcp_error why;
    const int status = dcp_steps_list(c->dir, &steps, &n, &why);
    if (status != DCP_OK) return resume_fail_directory(status, &why, err);
    for (size_t i = 0; i < n; i++) complete += steps[i].kind == DCP_STEP_COMPLETE;
    free(steps);
    *expected = is_text(c->resume, "auto") && complete > 0;
    if (is_text(c->resume, "auto") || complete == 0 || c->overwrite) return DCP_OK;
    return trainer_fail(err, DCP_ERR_STATE,
                        "checkpoint.resume: never, but %s holds %zu steps; set "
                        "checkpoint.overwrite=true to set them aside, or another checkpoint.dir",
                        c->dir, complete);
}

/* The complete steps of the directory, newest first, on every rank; freed by the caller. */
static int list_steps(const resume_from *from, int rank, uint64_t **out, uint64_t *n_out,
                      dcp_error *err) {
    dcp_step *steps = NULL;
    size_t n = 0;
    uint64_t complete = 0;
    int status = rank == 0 ? dcp_steps_list(from->c->dir, &steps, &n, err) : DCP_OK;
    for (size_t i = 0; i < n; i++) complete += steps[i].kind == DCP_STEP_COMPLETE;
    MPI_Bcast(&complete, 1, MPI_UINT64_T, 0, from->comm);
    uint64_t *list = calloc(complete + 1, sizeof *list);
    if (status == DCP_OK && !list) status = trainer_fail_memory(err, complete * sizeof *list);
    status = agree(from->comm, status, err);
    if (status == DCP_OK) {
        for (size_t i = n, at = 0; i-- > 0;)
            if (steps[i].kind == DCP_STEP_COMPLETE) list[at++] = steps[i].step;
        MPI_Bcast(list, (int)complete, MPI_UINT64_T, 0, from->comm);
        *out = list;
        *n_out = complete;
    } else {
        free(list);
    }
    free(steps);
    return status;
}

/* Whether the step's folder lies in the run's own directory. */
static int is_own_step(const config *c, const char *step_path) {
    char parent[PATH_MAX], own[PATH_MAX], found[PATH_MAX];
    const int n = snprintf(parent, sizeof parent, "%s/..", step_path);
    return n > 0 && (size_t)n < sizeof parent && realpath(parent, found) && realpath(c->dir, own) &&
           strcmp(found, own) == 0;
}

/* Takes the run's place from a checkpoint whose tensors are loaded. */
static int take_place(const resume_from *from, train_state *s, const dcp_checkpoint *ckpt,
                      int with_moments, dcp_error *err) {
    const int rank = s->layout->rank;
    const char *path = dcp_checkpoint_path(ckpt);
    int status = meta_read(s, from->c, from->epoch_samples, dcp_checkpoint_step(ckpt),
                           dcp_checkpoint_json(ckpt), err);
    if (status == DCP_OK) status = dcp_store_continue_from(from->store, s->step, err);
    if (status == DCP_OK && is_own_step(from->c, path))
        status = dcp_store_mark_intact(from->store, s->step, err);
    if (status != DCP_OK) return status;
    say(rank, "going on from step %" PRIu64 ": %s", s->step, path);
    if (!with_moments) say(rank, "%s has no optimizer state: the moments start at zero", path);
    if (rank == 0) about_compare_kernels(path, from->kernels);
    return DCP_OK;
}

/* What is done with the checkpoint that is to be resumed from. */
typedef int (*visit_fn)(const resume_from *from, train_state *s, const char *path, dcp_error *err);

/* Opens `path`, loads all of it and takes its place. */
static int resume_path(const resume_from *from, train_state *s, const char *path, dcp_error *err) {
    dcp_checkpoint *ckpt;
    int with_moments = 0;
    int status = dcp_checkpoint_open(from->dcp, path, &ckpt, err);
    if (status != DCP_OK) return status;
    status = state_load(s, from->comm, ckpt, STATE_ALL, from->c->engine, &with_moments, err);
    if (status == DCP_OK)
        status = agree(from->comm, take_place(from, s, ckpt, with_moments, err), err);
    dcp_checkpoint_close(ckpt);
    return status;
}

/* Opens `path` and says that a run would go on from there. */
static int foretell_path(const resume_from *from, train_state *s, const char *path,
                         dcp_error *err) {
    (void)s;
    dcp_checkpoint *ckpt;
    int status = dcp_checkpoint_open(from->dcp, path, &ckpt, err);
    if (status != DCP_OK) return status;
    status = agree(from->comm, state_match(from->layout, ckpt, err), err);
    if (status == DCP_OK)
        say(from->layout->rank, "would go on from step %" PRIu64 ": %s", dcp_checkpoint_step(ckpt),
            dcp_checkpoint_path(ckpt));
    dcp_checkpoint_close(ckpt);
    return status;
}

/* A step that was listed and has lost its file is as damaged as one that lost a byte. */
static int is_damage(int status) {
    return status == DCP_ERR_CORRUPT || status == DCP_ERR_NOT_FOUND;
}

static int visit_newest(const resume_from *from, train_state *s, visit_fn visit,
                        const uint64_t *steps, uint64_t n, dcp_error *err) {
    const int rank = from->layout->rank;
    for (uint64_t i = 0; i < n; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/step-%08" PRIu64, from->c->dir, steps[i]);
        const int status = visit(from, s, path, err);
        if (!is_damage(status)) return status;
        if (i + 1 < n)
            say_warning(rank, "step %" PRIu64 " is damaged (%s): falling back to step %" PRIu64,
                        steps[i], err->message, steps[i + 1]);
    }
    char last[sizeof err->message];
    memcpy(last, err->message, sizeof last);
    return trainer_fail(err, DCP_ERR_CORRUPT,
                        "%s: none of the %" PRIu64 " steps is intact (the oldest: %.500s); set "
                        "checkpoint.resume=never and checkpoint.overwrite=true to start anew",
                        from->c->dir, n, last);
}

/* A checkpoint, or a Hugging Face folder or file. */
static int is_checkpoint(const char *path) {
    static const char *const marks[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        char file[PATH_MAX];
        const int n = snprintf(file, sizeof file, "%s/%s", path, marks[i]);
        if (n > 0 && (size_t)n < sizeof file && stat(file, &st) == 0) return 0;
    }
    return 1;
}

static int init_from_checkpoint(const resume_from *from, train_state *s, dcp_error *err) {
    dcp_checkpoint *ckpt;
    int with_moments = 0;
    int status = dcp_checkpoint_open(from->dcp, from->c->init, &ckpt, err);
    if (status != DCP_OK) return status;
    status = state_load(s, from->comm, ckpt, STATE_MODEL, from->c->engine, &with_moments, err);
    if (status == DCP_OK)
        say(s->layout->rank, "weights from %s, moments start at zero", dcp_checkpoint_path(ckpt));
    dcp_checkpoint_close(ckpt);
    return status;
}

static int init(const resume_from *from, train_state *s, dcp_error *err) {
    const char *path = from->c->init;
    s->seed = from->c->seed;
    if (is_text(path, "random")) {
        state_randomize(s, model_init_std(from->m));
        say(s->layout->rank, "random start with seed %" PRIu64, s->seed);
        return DCP_OK;
    }
    int checkpoint = is_checkpoint(path);
    MPI_Bcast(&checkpoint, 1, MPI_INT, 0, from->comm);
    dcp_error why;
    int status;
    if (checkpoint)
        status = init_from_checkpoint(from, s, &why);
    else
        status = agree(from->comm, state_read_hf(s, path, &why), &why);
    if (status != DCP_OK) return trainer_fail(err, status, "init: %s", why.message);
    if (!checkpoint) say(s->layout->rank, "weights from %s", path);
    return DCP_OK;
}

/* Visits the checkpoint that checkpoint.resume means; *found: there is one. */
static int visit_checkpoint(const resume_from *from, train_state *s, visit_fn visit, int *found,
                            dcp_error *err) {
    const char *how = from->c->resume;
    *found = !is_text(how, "never") && !is_text(how, "auto");
    if (*found) {
        dcp_error why;
        const int status = visit(from, s, how, &why);
        return status == DCP_OK ? DCP_OK
                                : trainer_fail(err, status, "checkpoint.resume: %s", why.message);
    }
    if (is_text(how, "never")) return DCP_OK;
    uint64_t *steps = NULL, n = 0;
    int status = list_steps(from, from->layout->rank, &steps, &n, err);
    if (status == DCP_OK && n > 0) status = visit_newest(from, s, visit, steps, n, err);
    free(steps);
    *found = n > 0;
    return status;
}

int resume(const resume_from *from, train_state *s, dcp_error *err) {
    int found;
    int status = visit_checkpoint(from, s, resume_path, &found, err);
    if (status != DCP_OK || found) return status;
    status = init(from, s, err);
    if (status == DCP_OK) status = dcp_store_continue_from(from->store, 0, err);
    return status;
}

/* Whether the weights to start from are there, and the model's. */
static int check_init(const resume_from *from, dcp_error *err) {
    const char *path = from->c->init;
    int checkpoint = is_checkpoint(path);
    MPI_Bcast(&checkpoint, 1, MPI_INT, 0, from->comm);
    if (!checkpoint) return agree(from->comm, state_match_hf(from->layout, path, err), err);
    dcp_checkpoint *ckpt;
    int status = dcp_checkpoint_open(from->dcp, path, &ckpt, err);
    if (status != DCP_OK) return status;
    status = agree(from->comm, state_match(from->layout, ckpt, err), err);
    dcp_checkpoint_close(ckpt);
    return status;
}

int resume_foretell(const resume_from *from, dcp_error *err) {
    const config *c = from->c;
    int found;
    int status = visit_checkpoint(from, NULL, foretell_path, &found, err);
    if (status != DCP_OK || found) return status;
    if (is_text(c->init, "random")) {
        say(from->layout->rank, "would start at random, with seed %" PRIu64, c->seed);
        return DCP_OK;
    }
    dcp_error why;
    status = check_init(from, &why);
    if (status != DCP_OK) return trainer_fail(err, status, "init: %s", why.message);
    say(from->layout->rank, "would start with weights from %s", c->init);
    return DCP_OK;
}
