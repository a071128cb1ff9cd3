/* Chooses where a run starts, and loads it. Listing, opening and loading steps are collective, so
 * all ranks try the same steps and see the same outcome of each attempt. */
#include "state/resume.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/path_checks.h"
#include "optim/optim.h"
#include "programs/fail.h"
#include "ranks/board.h"
#include "ranks/launcher.h"
#include "ranks/log.h"
#include "state/carried_files.h"
#include "state/meta.h"
#include "state/provenance.h"
#include "state/state_load.h"
#include <dcp/inspect.h>
#include <dcp/tiers.h>

static bool is_text(const char *a, const char *b) { return strcmp(a, b) == 0; }

int state_resume_fail_directory(const config *c, int status, const dcp_error *why, dcp_error *err) {
    const bool is_wrong = status == DCP_ERR_IO && config_paths_are_closed(c);
    return core_fail(err, is_wrong ? DCP_ERR_ARG : status, "%s: %s",
                     c->n_stores == 1 ? "checkpoint.dir" : "checkpoint.stores or checkpoint.dir",
                     why->message);
}

int state_resume_expected(const config *c, dcp_comm *dcp, bool *expected, dcp_error *err) {
    dcp_tiers_step *steps;
    size_t n;
    *expected = !is_text(c->resume, "never") && !is_text(c->resume, "auto");
    if (*expected) return DCP_OK;
    dcp_error why;
    const int status = dcp_tiers_steps(dcp, c->stores, c->n_stores, &steps, &n, &why);
    if (status != DCP_OK) return state_resume_fail_directory(c, status, &why, err);
    const char *where = n > 0 ? c->stores[steps[0].tier].path : c->dir;
    free(steps);
    *expected = is_text(c->resume, "auto") && n > 0;
    if (is_text(c->resume, "auto") || n == 0 || c->overwrite) return DCP_OK;
    return core_fail(err, DCP_ERR_STATE,
                     "checkpoint.resume: never, but %s holds %zu steps; set "
                     "checkpoint.overwrite=true to set them aside, or another checkpoint.dir",
                     c->n_stores == 1 ? where : "the list of stores", n);
}

typedef struct resume_steps {
    const config *c;
    dcp_comm *dcp;
    MPI_Comm comm;
} resume_steps;

/* Returns true if the status proves that something is missing or damaged. */
static bool is_damage(int status) {
    return status == DCP_ERR_CORRUPT || status == DCP_ERR_NOT_FOUND;
}

/* Returns true if something could not be read, so it is unknown whether it is damaged. */
static bool is_unread(int status) { return status == DCP_ERR_IO || status == DCP_ERR_NO_MEMORY; }

static int fail_unread(uint64_t step, const dcp_error *why, dcp_error *err) {
    return core_fail(err, why->status,
                     "step %" PRIu64
                     " could not be read, which proves no damage, so no older step is used "
                     "instead: %.600s; try again, or set checkpoint.resume to an older step's "
                     "folder to continue from that step and set later ones aside",
                     step, why->message);
}

/* The members of about.json by which a run recognizes its own steps: STATE_LAUNCH is the name of
 * its dcp-run, and STATE_CONFIG the checksum of its configuration. A member that is "" here is not
 * compared. */
typedef struct own_names {
    char launch[STATE_RUN_BYTES], given[STATE_RUN_BYTES];
    bool is_requeued; /* Slurm has requeued the job */
} own_names;

/* What is known about who saved a step. If copies of a step differ, the largest value counts. */
enum { OWNER_UNKNOWN, OWNER_OTHER, OWNER_CONFIG, OWNER_LAUNCH };

static bool has_name(const char *found, const char *name) { return *name && is_text(found, name); }

/* Reads from the step's about.json who saved it. After a failure, that is unknown. */
static int find_owner(const char *step_path, const own_names *names, int *is, dcp_error *err) {
    char launch[STATE_RUN_BYTES], given[STATE_RUN_BYTES];
    int status = state_provenance_name(step_path, STATE_LAUNCH, launch, err);
    if (status == DCP_OK) status = state_provenance_name(step_path, STATE_CONFIG, given, err);
    if (status != DCP_OK) return status;
    *is = has_name(launch, names->launch) ? OWNER_LAUNCH
          : has_name(given, names->given) ? OWNER_CONFIG
                                          : OWNER_OTHER;
    return DCP_OK;
}

/* Returns true if the run that saved the step is finished, and was not requeued: a start with the
 * same configuration is meant to repeat it. */
static bool is_finished(const resume_steps *r, const own_names *names, const dcp_checkpoint *ckpt) {
    return dcp_checkpoint_step(ckpt) >= r->c->max_steps && !names->is_requeued &&
           !state_meta_owes_evaluation(dcp_checkpoint_json(ckpt));
}

/* Collective. Finds out who saved a step. If some rank can tell, all ranks get its answer; only
 * rank 0 reads a shared store. After a failure, the owner is unknown. */
static int find_owner_of(const resume_steps *r, const dcp_tiers_step *which, const own_names *names,
                         int *is, dcp_error *err) {
    const bool reads = dcp_comm_rank(r->dcp) == 0 || r->c->stores[which->tier].is_private;
    dcp_checkpoint *ckpt;
    *is = OWNER_UNKNOWN;
    int status = dcp_tiers_open_step(r->dcp, r->c->stores, which, &ckpt, err);
    if (status != DCP_OK) return status;
    if (reads) status = find_owner(dcp_checkpoint_path(ckpt), names, is, err);
    MPI_Allreduce(MPI_IN_PLACE, is, 1, MPI_INT, MPI_MAX, r->comm);
    if (*is == OWNER_CONFIG && is_finished(r, names, ckpt)) *is = OWNER_OTHER;
    dcp_checkpoint_close(ckpt);
    return *is == OWNER_UNKNOWN ? ranks_agree(r->comm, status, err) : DCP_OK;
}

/* The newest step of which some copy was damaged or could not be read. */
typedef struct doubtful_step {
    uint64_t step;
    dcp_error why; /* its status is 0 if there is no such step */
} doubtful_step;

/* Collective. Finds out who saved the newest step whose owner can be found out: later steps may be
 * damaged, and are the same run's then. */
static int find_newest_owner(const resume_steps *r, const own_names *names,
                             const dcp_tiers_step *steps, size_t n, doubtful_step *doubt) {
    int found = OWNER_UNKNOWN;
    for (size_t i = 0; i < n && found < OWNER_CONFIG; i++) {
        int is;
        dcp_error why;
        if (found && steps[i].step != steps[i - 1].step) break;
        const int status = find_owner_of(r, &steps[i], names, &is, &why);
        if (is > found) found = is;
        if (status == DCP_OK || (doubt->why.status && !is_unread(status))) continue;
        if (!is_unread(doubt->why.status)) *doubt = (doubtful_step){steps[i].step, why};
    }
    return found;
}

/* Returns true if Slurm has requeued the job. Slurm counts requeues in the environment. */
static bool is_requeued(void) {
    const char *count = getenv("SLURM_RESTART_COUNT");
    return count && atoi(count) > 0;
}

/* Fills in the names. Rank 0's names are used, because the environments of other ranks may differ.
 * With checkpoint.resume=never, which the user may intend, this start belongs to an earlier job
 * only if Slurm has requeued it. */
static void name_own(const config *c, MPI_Comm comm, own_names *names) {
    *names = (own_names){"", "", is_requeued()};
    ranks_launcher_name(names->launch);
    if (names->is_requeued || !is_text(c->resume, "never"))
        snprintf(names->given, STATE_RUN_BYTES, "%016" PRIx64, c->given);
    MPI_Bcast(names, sizeof *names, MPI_CHAR, 0, comm);
}

/* Fails if the run surely was to continue from its own steps, but it is unknown which ones they
 * are. Otherwise only warns, because the user may have chosen another step for that reason. */
static int doubt_owner(const resume_steps *r, const own_names *names, const doubtful_step *doubt,
                       dcp_error *err) {
    const bool is_damaged = !is_unread(doubt->why.status);
    if (!is_damaged && (*names->launch || names->is_requeued))
        return fail_unread(doubt->step, &doubt->why, err);
    ranks_warn(dcp_comm_rank(r->dcp),
               "step %" PRIu64 " %s, so it is unknown whether this run has saved it, and "
               "checkpoint.resume=%s is followed (%.600s)",
               doubt->step, is_damaged ? "is damaged" : "could not be read", r->c->resume,
               doubt->why.message);
    return DCP_OK;
}

int state_resume_find_own(const config *c, dcp_comm *dcp, MPI_Comm comm, state_ownership *found,
                          dcp_error *err) {
    const resume_steps r = {c, dcp, comm};
    own_names names;
    dcp_tiers_step *steps;
    dcp_error why;
    doubtful_step doubt = {0};
    size_t n;
    *found = STATE_OWN_NONE;
    name_own(c, comm, &names);
    if (!*names.launch && !*names.given) return DCP_OK;
    int status = dcp_tiers_steps(dcp, c->stores, c->n_stores, &steps, &n, &why);
    if (status != DCP_OK) return state_resume_fail_directory(c, status, &why, err);
    const int is = find_newest_owner(&r, &names, steps, n, &doubt);
    free(steps);
    if (is == OWNER_LAUNCH) *found = STATE_OWN_LAUNCH;
    if (is == OWNER_CONFIG) *found = STATE_OWN_CONFIG;
    return *found || !doubt.why.status ? DCP_OK : doubt_owner(&r, &names, &doubt, err);
}

/* Returns true if the step's folder is in the run's own directory. */
static bool is_own_step(const config *c, const char *step_path) {
    char parent[PATH_MAX], own[PATH_MAX], found[PATH_MAX];
    const int n = snprintf(parent, sizeof parent, "%s/..", step_path);
    return n > 0 && (size_t)n < sizeof parent && realpath(parent, found) && realpath(c->dir, own) &&
           strcmp(found, own) == 0;
}

static int read_place(const resume_from *from, const dcp_checkpoint *ckpt, meta_position *out,
                      dcp_error *err) {
    const meta_run run = {.rank = from->layout->rank,
                          .c = from->c,
                          .data = {from->epoch_samples, from->sequence, from->fingerprint}};
    return state_meta_read(&run, dcp_checkpoint_json(ckpt), out, err);
}

/* Reports to dcp-run the store that the step was loaded from, and how many files were rebuilt. */
static void report_to_board(const resume_from *from, uint64_t step, const char *path) {
    const char *slash = strrchr(path, '/');
    const int length = slash ? (int)(slash - path) : 0, rebuilt = dcp_tiers_rebuilt(from->stores);
    char text[RANKS_BOARD_TEXT], files[64] = "";
    if (from->layout->rank != 0) return;
    if (rebuilt) snprintf(files, sizeof files, ", %d files rebuilt", rebuilt);
    snprintf(text, sizeof text, "step %" PRIu64 " from %.*s%s", step, length < 400 ? length : 400,
             length ? path : ".", files);
    ranks_board_resumed(text);
}

/* Returns true if two values of `init` name the same weights. */
static bool is_same_init(const char *a, const char *b) {
    char one[PATH_MAX], other[PATH_MAX];
    if (is_text(a, b)) return true;
    return realpath(a, one) && realpath(b, other) && is_text(one, other);
}

/* Rank 0 only. Warns if the configured `init` does not name the weights that the run began with.
 * began: the run's `init`; "" if unknown. */
static void warn_unused_init(const config *c, const char *began) {
    if (is_text(c->init, "random") || is_same_init(c->init, began)) return;
    ranks_warn(0,
               "init: %s is not used, because the run continues from its step%s%s; to start with "
               "these weights set another checkpoint.dir, or checkpoint.resume=never and "
               "checkpoint.overwrite=true",
               c->init, *began ? ", and began with " : "", began);
}

/* Makes the run continue from the checkpoint's step, after its tensors were loaded. */
static int take_place(const resume_from *from, train_state *s, const dcp_checkpoint *ckpt,
                      int with_slots, dcp_error *err) {
    const int rank = s->layout->rank;
    const char *path = dcp_checkpoint_path(ckpt);
    meta_position place;
    /* rank 0's result is used, because other ranks may not see the directory */
    int is_own = is_own_step(from->c, path);
    MPI_Bcast(&is_own, 1, MPI_INT, 0, from->comm);
    state_provenance_copy_results(from->comm, path, from->provenance);
    int status = read_place(from, ckpt, &place, err);
    if (status == DCP_OK) {
        s->step = dcp_checkpoint_step(ckpt);
        s->samples = place.samples;
        s->tokens = place.tokens;
        s->seed = place.seed;
        s->has_other_data = place.has_other_data;
        s->has_raw_images = place.has_raw_images;
        s->is_own_run = is_text(from->c->resume, "auto") || is_own;
        s->owes_evaluation = place.owes_evaluation && s->is_own_run;
        s->is_loaded = true;
        if (rank == 0) state_provenance_run(path, s->saved_by);
        if (rank == 0) state_provenance_init(path, s->init);
    }
    if (status == DCP_OK) status = dcp_tiers_continue_from(from->stores, s->step, err);
    if (status == DCP_OK && is_own)
        status = dcp_tiers_mark_intact(from->stores, from->c->n_stores - 1, s->step, err);
    if (status != DCP_OK) return status;
    ranks_info(rank, "continuing from step %" PRIu64 ": %s", s->step, path);
    report_to_board(from, s->step, path);
    if (!with_slots && state_has_optimizer(ckpt))
        ranks_warn(rank, "%s has no optimizer state of %s: it starts at zero", path,
                   s->optimizer->name);
    else if (!with_slots)
        ranks_info(rank, "%s has no optimizer state: the moments start at zero", path);
    if (rank == 0 && with_slots) state_provenance_compare(path, from->provenance);
    if (rank == 0) warn_unused_init(from->c, s->init);
    return DCP_OK;
}

/* How a checkpoint is used: it is loaded into the state `s`; if `s` is NULL, only the start of the
 * run is previewed. */
typedef struct visit {
    const resume_from *from;
    train_state *s;
} visit;

/* Loads everything from an open checkpoint, and makes the run continue from its step. */
static int load_all(const visit *v, dcp_checkpoint *ckpt, dcp_error *err) {
    int with_slots = 0;
    v->s->seed = v->from->c->seed; /* for tensors that the checkpoint lacks */
    int status =
        state_load(v->s, v->from->comm, ckpt, STATE_ALL, v->from->c->engine, &with_slots, err);
    if (status != DCP_OK) return status;
    return ranks_agree(v->from->comm, take_place(v->from, v->s, ckpt, with_slots, err), err);
}

static void report_preview(const config *c, int rank, const dcp_checkpoint *ckpt, bool with_slots) {
    const uint64_t step = dcp_checkpoint_step(ckpt);
    char head[128], rate[64] = "";
    if (step >= c->max_steps)
        snprintf(head, sizeof head,
                 "step %" PRIu64 " of max_steps %" PRIu64
                 " is reached: the run is done, and nothing would be trained",
                 step, c->max_steps);
    else
        snprintf(head, sizeof head, "would continue from step %" PRIu64, step);
    if (step < c->max_steps)
        snprintf(rate, sizeof rate, "; the next learning rate is %.4g",
                 optim_schedule_lr(c, step + 1));
    ranks_info(rank,
               "%s: %s, whose tensors are the model's%s; their bytes are checked when they are "
               "loaded, or by dcp-inspect verify%s",
               head, dcp_checkpoint_path(ckpt), with_slots ? "" : ", with moments of zero", rate);
}

/* Reports that a run would continue from the open checkpoint, and prints the warnings of such a
 * run. */
static int preview(const visit *v, dcp_checkpoint *ckpt, dcp_error *err) {
    const fsdp_layout *layout = v->from->layout;
    const char *path = dcp_checkpoint_path(ckpt);
    meta_position place;
    bool with_slots;
    int status = state_match(layout, v->from->optimizer, ckpt, &with_slots, err);
    if (status == DCP_OK) status = read_place(v->from, ckpt, &place, err);
    status = ranks_agree(v->from->comm, status, err);
    if (status != DCP_OK) return status;
    if (layout->rank == 0 && with_slots) state_provenance_compare(path, v->from->provenance);
    char began[STATE_INIT_BYTES];
    if (layout->rank != 0) return DCP_OK;
    state_provenance_init(path, began);
    warn_unused_init(v->from->c, began);
    report_preview(v->from->c, layout->rank, ckpt, with_slots);
    return DCP_OK;
}

static int take_opened(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    const visit *v = ctx;
    if (v->s) ranks_board_reach(RANKS_PHASE_REBUILT);
    return v->s ? load_all(v, ckpt, err) : preview(v, ckpt, err);
}

static int take_path(const visit *v, const char *path, dcp_error *err) {
    dcp_checkpoint *ckpt;
    int status = dcp_checkpoint_open(v->from->dcp, path, &ckpt, err);
    if (status != DCP_OK) return status;
    status = take_opened((void *)v, ckpt, err);
    dcp_checkpoint_close(ckpt);
    return status;
}

/* Finds the step that dcp_tiers_load would load. Stores are not open, so no files are rebuilt. */
static int preview_newest(const visit *v, dcp_error *err) {
    const resume_from *from = v->from;
    dcp_tiers_step *steps;
    dcp_error unread = {0};
    size_t n;
    int status = dcp_tiers_steps(from->dcp, from->c->stores, from->c->n_stores, &steps, &n, err);
    if (status != DCP_OK) return status;
    status = n > 0 ? DCP_ERR_CORRUPT : core_fail(err, DCP_ERR_NOT_FOUND, "no step");
    for (size_t i = 0; i < n && is_damage(status); i++) {
        const bool is_last_copy = i + 1 == n || steps[i + 1].step != steps[i].step;
        dcp_checkpoint *ckpt;
        status = dcp_tiers_open_step(from->dcp, from->c->stores, &steps[i], &ckpt, err);
        if (status == DCP_OK) {
            status = preview(v, ckpt, err);
            dcp_checkpoint_close(ckpt);
        }
        if (is_damage(status) || is_unread(status))
            ranks_warn(from->layout->rank, "step %" PRIu64 " %s (%s)", steps[i].step,
                       is_damage(status) ? "is damaged" : "could not be read", err->message);
        if (is_unread(status)) {
            unread = *err;
            status = DCP_ERR_CORRUPT; /* another copy may be readable */
        }
        if (is_damage(status) && unread.status && is_last_copy)
            status = fail_unread(steps[i].step, &unread, err);
    }
    free(steps);
    return is_damage(status) && n > 0 ? DCP_ERR_CORRUPT : status;
}

/* Fails with the message that no step of the run can be loaded. */
static int fail_damaged(const config *c, const dcp_error *why, dcp_error *err) {
    return core_fail(err, DCP_ERR_CORRUPT,
                     "%s: %.700s; set checkpoint.resume=never and checkpoint.overwrite=true to "
                     "start anew",
                     c->dir, why->message);
}

/* Loads or previews the newest step that can be loaded. *found: whether any step exists. */
static int take_newest(visit *v, bool *found, dcp_error *err) {
    const config *c = v->from->c;
    dcp_error why;
    const int status = v->s ? dcp_tiers_load(v->from->stores, take_opened, v, NULL, &why)
                            : preview_newest(v, &why);
    *found = status != DCP_ERR_NOT_FOUND;
    if (status == DCP_ERR_NOT_FOUND || status == DCP_OK) return DCP_OK;
    if (status == DCP_ERR_CORRUPT)
        return ranks_agree(v->from->comm, fail_damaged(c, &why, err), err);
    *err = why;
    return status;
}

static const char init_takes[] = "give a Hugging Face folder, an intact checkpoint, or random";
static const char resume_takes[] = "give an intact step, or auto";

/* Fails with *why for a key of the configuration. takes: the remedy, which is added to the message
 * if the key's step or weights are missing or damaged. */
static int fail_key(const char *key, const char *takes, int status, const dcp_error *why,
                    dcp_error *err) {
    const bool is_useless = status == DCP_ERR_NOT_FOUND || status == DCP_ERR_CORRUPT;
    return core_fail(err, status, "%s: %s%s%s", key, why->message, is_useless ? "; " : "",
                     is_useless ? takes : "");
}

/* Returns true if the path is a checkpoint: a folder without the files of a Hugging Face model. */
static bool is_checkpoint(const char *path) {
    static const char *const marks[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        char file[PATH_MAX];
        const int n = snprintf(file, sizeof file, "%s/%s", path, marks[i]);
        if (n > 0 && (size_t)n < sizeof file && stat(file, &st) == 0) return false;
    }
    return true;
}

static int init_from_checkpoint(const resume_from *from, train_state *s, dcp_error *err) {
    dcp_checkpoint *ckpt;
    int with_slots = 0;
    int status = dcp_checkpoint_open(from->dcp, from->c->init, &ckpt, err);
    if (status != DCP_OK) return status;
    status = state_load(s, from->comm, ckpt, STATE_MODEL, from->c->engine, &with_slots, err);
    if (status == DCP_OK)
        ranks_info(s->layout->rank, "weights from %s, moments start at zero",
                   dcp_checkpoint_path(ckpt));
    dcp_checkpoint_close(ckpt);
    return status;
}

static int read_hf(train_state *s, const char *folder, dcp_error *err) {
    static const char *const kept[] = {"generation_config.json", "preprocessor_config.json"};
    int status = state_read_hf(s, folder, err);
    for (size_t i = 0; i < sizeof kept / sizeof *kept && status == DCP_OK; i++)
        status = state_files_keep_init(s, folder, kept[i], err);
    return status;
}

static int init_state(const resume_from *from, train_state *s, dcp_error *err) {
    const char *path = from->c->init;
    s->seed = from->c->seed;
    if (is_text(path, "random")) {
        state_randomize(s);
        ranks_info(s->layout->rank, "random start with seed %" PRIu64, s->seed);
        state_unused_weights_warn(from->c, s->layout->rank);
        return DCP_OK;
    }
    int checkpoint = is_checkpoint(path);
    MPI_Bcast(&checkpoint, 1, MPI_INT, 0, from->comm);
    dcp_error why;
    int status;
    if (checkpoint)
        status = init_from_checkpoint(from, s, &why);
    else
        status = ranks_agree(from->comm, read_hf(s, path, &why), &why);
    if (status != DCP_OK) return fail_key("init", init_takes, status, &why, err);
    if (!checkpoint) ranks_info(s->layout->rank, "weights from %s", path);
    return DCP_OK;
}

/* Loads or previews the checkpoint that checkpoint.resume selects. *found: whether there is one. */
static int take_checkpoint(const resume_from *from, train_state *s, bool *found, dcp_error *err) {
    const char *how = from->c->resume;
    visit v = {from, s};
    *found = false;
    if (is_text(how, "never")) return DCP_OK;
    if (is_text(how, "auto")) return take_newest(&v, found, err);
    dcp_error why;
    *found = true;
    const int status = take_path(&v, how, &why);
    if (status == DCP_OK) return DCP_OK;
    fail_key("checkpoint.resume", resume_takes, status, &why, err);
    return ranks_agree(from->comm, status, err);
}

int state_resume(const resume_from *from, train_state *s, dcp_error *err) {
    bool found;
    int status = take_checkpoint(from, s, &found, err);
    if (status != DCP_OK || found) return status;
    if (from->c->restarted)
        return core_fail(err, DCP_ERR_NOT_FOUND,
                         "checkpoint.dir: %s no longer holds any step, although this run has saved "
                         "some: restore them, or start the run again",
                         from->c->dir);
    ranks_board_resumed("the beginning, because no step is saved");
    status = init_state(from, s, err);
    if (status == DCP_OK) status = dcp_tiers_continue_from(from->stores, 0, err);
    return status;
}

/* Checks that the weights at `init` exist, and that their tensors match the model's. */
static int check_init(const resume_from *from, dcp_error *err) {
    const char *path = from->c->init;
    int checkpoint = is_checkpoint(path);
    MPI_Bcast(&checkpoint, 1, MPI_INT, 0, from->comm);
    if (!checkpoint) return ranks_agree(from->comm, state_match_hf(from->layout, path, err), err);
    dcp_checkpoint *ckpt;
    int status = dcp_checkpoint_open(from->dcp, path, &ckpt, err);
    if (status != DCP_OK) return status;
    bool with_slots;
    status = ranks_agree(from->comm, state_match(from->layout, NULL, ckpt, &with_slots, err), err);
    dcp_checkpoint_close(ckpt);
    return status;
}

int state_resume_preview(const resume_from *from, dcp_error *err) {
    const config *c = from->c;
    bool found;
    int status = take_checkpoint(from, NULL, &found, err);
    if (status != DCP_OK || found) return status;
    if (is_text(c->init, "random")) {
        state_unused_weights_warn(c, from->layout->rank);
        ranks_info(from->layout->rank, "would start at random, with seed %" PRIu64, c->seed);
        return DCP_OK;
    }
    dcp_error why;
    status = check_init(from, &why);
    if (status != DCP_OK) return fail_key("init", init_takes, status, &why, err);
    ranks_info(from->layout->rank, "would start with weights from %s", c->init);
    return DCP_OK;
}
