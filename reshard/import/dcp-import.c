/* dcp-import: imports a Hugging Face folder as step 0 of a checkpoint directory.
 *
 * The program checks the whole folder, and whether there is enough space, before it writes
 * anything. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <dcp/dcp.h>

#include "common/launch.h"
#include "import/hf_source.h"
#include "import/model_tensors.h"
#include "programs/arguments.h"
#include "programs/json_read.h"
#include "programs/program.h"

typedef struct import_request {
    const char *hf, *dst;
    bool force, take_over, dry_run, allow_mismatch, with_optimizer;
} import_request;

/* The contents of the folder that is imported. */
typedef struct folder {
    import_model model;
    import_files files;
    json_t *config;
    import_source *source;
    uint64_t bytes; /* the size of all tensors */
} folder;

static const char about[] =
    "Common use:\n"
    "  dcp-import Qwen3-0.6B ckpt                    the folder becomes ckpt/step-00000000\n"
    "  mpirun --oversubscribe -n 4 dcp-import ...    four ranks share the work\n"
    "\n"
    "Imports the model of a Hugging Face folder (config.json, one or many safetensors files)\n"
    "as step 0 of the checkpoint directory CKPT_DIR, with the files of its tokenizer. Types\n"
    "stay as they are; dcp-train widens them, and starts with moments of zero or, with\n"
    "--with-optimizer, with the moments of an export. If dcp-train knows the model, the\n"
    "tensors must be those that config.json requires.";

static int parse_import(import_request *s, int argc, char **argv) {
    const program_option options[] = {
        PROGRAM_FLAG("force", "replace step 0 of CKPT_DIR, or add it to a run's steps", &s->force),
        PROGRAM_FLAG(
            "take-over",
            "on a file system without locks: take over CKPT_DIR from a writer that has ended",
            &s->take_over),
        PROGRAM_FLAG("allow-mismatch",
                     "import tensors that differ from those that config.json requires",
                     &s->allow_mismatch),
        PROGRAM_FLAG("with-optimizer", "also import the optimizer's state that dcp-export wrote",
                     &s->with_optimizer),
        {0}};
    const program_command program = {.name = "dcp-import",
                                     .usage = "HF_DIR CKPT_DIR [options]",
                                     .about = about,
                                     .options = options,
                                     .dry_run = &s->dry_run,
                                     .stops = true};
    char **args;
    int n, status = program_arguments_parse(&program, argc, argv, 2, 2, &args, &n);
    if (status >= 0) return status;
    s->hf = args[0];
    s->dst = args[1];
    return -1;
}

static int check_folder(const char *path) {
    struct stat st;
    if (stat(path, &st)) return program_fail_errno("cannot open", path);
    if (!S_ISDIR(st.st_mode))
        return program_refuse("%s: not a folder; give the one that holds config.json", path);
    return 0;
}

static void close_folder(folder *f) {
    import_source_free(f->source);
    json_decref(f->config);
    import_files_close(&f->files);
    import_model_close(&f->model);
}

static uint64_t bytes_of_tensors(const import_tensors *tensors) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < tensors->n; i++) bytes += dcp_tensor_bytes(&tensors->list[i].tensor);
    return bytes;
}

static int open_folder(const launch *job, const import_request *s, folder *f) {
    const char *path = s->hf;
    import_model *m = &f->model;
    dcp_error err = {0};
    int status = check_folder(path);
    if (status == 0) status = import_config_read(path, &f->config);
    if (status == 0 && dcp_st_open_incomplete(path, &m->reader, &err)) {
        status = program_report(&err);
        if (err.status == DCP_ERR_NOT_FOUND) import_note_others(path);
    }
    if (status == 0 && dcp_st_tensors(m->reader) == 0)
        status = program_fail(PROGRAM_DIFFERS,
                              "%s: names no tensors, so there is nothing to import", path);
    if (status == 0 && s->with_optimizer)
        status = import_moments_open(path, m->reader, &m->moments);
    if (status == 0) status = import_model_name(m);
    if (status == 0) status = import_files_open(path, &f->files);
    if (status == 0) status = import_source_make(m, &f->files, job->rank, job->size, &f->source);
    if (status == 0)
        f->bytes = bytes_of_tensors(&m->tensors) + bytes_of_tensors(&m->moment_tensors);
    return status;
}

/* Rank 0 opens the folder before the other ranks do, so that a failure is printed only once.
 * Collective. */
static int open_folder_everywhere(const launch *job, const import_request *s, folder *f) {
    int status = job->rank == 0 ? open_folder(job, s, f) : 0;
    if (status == 0 && job->rank == 0) {
        import_note_unnamed(s->hf, f->model.reader, s->with_optimizer);
        import_note_code(s->hf);
        import_note_left(s->hf);
        status = tensor_names_report(s->hf, &f->model.names);
        if (status == 0)
            status = import_tensors_check(s->hf, f->config, &f->model, s->allow_mismatch);
    }
    status = launch_worst(job, status);
    if (status == 0) status = launch_worst(job, job->rank == 0 ? 0 : open_folder(job, s, f));
    return status;
}

/* Called if CKPT_DIR contains a run's steps: programs would use the newest of these steps instead
 * of the import. Fails or, with --force, reports this. */
static int judge_newer(const import_request *s, uint64_t newest) {
    if (!s->force)
        return program_refuse(
            "%s holds a run, up to step %" PRIu64
            ", from which training would continue; import into another folder, or add --force",
            s->dst, newest);
    program_note("%s holds steps up to %" PRIu64
                 ": training there continues from the newest one; to start from the import, set "
                 "checkpoint.resume=%s/step-00000000",
                 s->dst, newest, s->dst);
    return 0;
}

static int check_steps(const import_request *s, const char *dst) {
    dcp_step *steps;
    size_t n;
    int status = step_path_list(dst, &steps, &n);
    if (status) return status;
    if (n && steps[0].step == 0 && !s->force)
        status =
            program_refuse("%s/%s: already exists; --force replaces it", s->dst, steps[0].name);
    if (status == 0 && n && steps[n - 1].step) status = judge_newer(s, steps[n - 1].step);
    free(steps);
    return status;
}

static int check_dst(const import_request *s) {
    char hf[PATH_MAX], dst[PATH_MAX];
    struct stat st;
    if (!realpath(s->dst, dst)) return 0;
    if (stat(dst, &st) == 0 && !S_ISDIR(st.st_mode))
        return program_refuse("%s: exists and is not a folder", s->dst);
    if (!s->force && realpath(s->hf, hf) && strcmp(hf, dst) == 0)
        return program_refuse(
            "HF_DIR and CKPT_DIR are the same folder, %s; --force puts the step into it", dst);
    return check_steps(s, dst);
}

/* Finds the number of free bytes of the file system that holds, or will hold, `path`. */
static int free_space(const char *path, uint64_t *out) {
    char dir[PATH_MAX];
    struct statvfs fs;
    snprintf(dir, sizeof dir, "%s", path);
    while (statvfs(dir, &fs)) {
        char *slash = strrchr(dir, '/');
        if (errno != ENOENT || strcmp(dir, ".") == 0) return -1;
        if (!slash)
            strcpy(dir, ".");
        else
            slash[slash == dir] = 0;
    }
    *out = (uint64_t)fs.f_bavail * fs.f_frsize;
    return 0;
}

/* Checks that there is enough space. A save also reserves its space, but this check fails before a
 * folder is created. */
static int check_space(const char *path, uint64_t bytes) {
    char needed[32], there[32];
    uint64_t room;
    if (free_space(path, &room) || bytes <= room) return 0;
    return program_fail(PROGRAM_FAILED,
                        "%s: the import needs %s, but the file system has only %s free", path,
                        program_bytes_text(bytes, needed), program_bytes_text(room, there));
}

static void print_result(const import_request *s, const folder *f, bool will) {
    char text[32];
    printf("%s%s/step-00000000: %zu tensors, %s", will ? "write " : "", s->dst,
           f->model.tensors.n + f->model.moment_tensors.n, program_bytes_text(f->bytes, text));
    for (size_t i = 0; i < f->files.n; i++)
        printf("%s%s", i ? ", " : "; with ", f->files.list[i].name);
    puts(f->model.moments ? "; with the optimizer's state: training starts with its moments"
                          : "; no optimizer state: training starts with zero moments");
}

/* Returns the JSON text of meta, with the members that an import can determine. Releases the
 * configuration, which may be large. NULL if out of memory. */
static char *make_json(folder *f) {
    json_t *meta = json_pack("{s:i, s:i, s:o}", "samples", 0, "tokens", 0, "model", f->config);
    char *text = meta ? core_json_text(meta, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(meta);
    f->config = NULL;
    return text;
}

static void update_bar(void *bar, uint64_t done, uint64_t total) {
    progress_bar_update(bar, done, total);
}

static void on_log(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx;
    if (level == DCP_LOG_WARNING) program_note("%s", line);
}

static int save(const launch *job, const import_request *s, const folder *f, const char *json) {
    dcp_error err = {0};
    dcp_store *store;
    progress_bar bar;
    const dcp_store_options to = {.size = sizeof to,
                                  .replace = s->force,
                                  .tool = "dcp-import",
                                  .log = on_log,
                                  .take_over = s->take_over};
    const dcp_save_options options = {.size = sizeof options,
                                      .on_progress = update_bar,
                                      .progress_ctx = &bar,
                                      .stop = launch_is_stopped};
    if (dcp_store_open(job->comm, s->dst, &to, &store, &err)) return program_report(&err);
    progress_bar_start(&bar, "importing");
    int status = dcp_save(store, 0, import_source_state(f->source), json, &options, NULL, &err);
    progress_bar_end(&bar);
    dcp_store_close(store);
    return status ? program_report(&err) : 0;
}

static int import(const launch *job, const import_request *s, folder *f) {
    char *json = make_json(f);
    int status = launch_worst(job, json ? 0 : program_no_memory());
    if (status == 0) status = save(job, s, f, json);
    free(json);
    return status;
}

static int run_import(const launch *job, const import_request *s) {
    folder f = {0};
    int status = open_folder_everywhere(job, s, &f);
    if (status == 0) {
        int refused = job->rank == 0 ? check_dst(s) : 0;
        if (job->rank == 0 && !refused) refused = check_space(s->dst, f.bytes + f.files.bytes);
        status = launch_worst(job, refused);
    }
    if (status == 0 && !s->dry_run) status = import(job, s, &f);
    if (status == 0 && job->rank == 0) print_result(s, &f, s->dry_run);
    close_folder(&f);
    return status;
}

int main(int argc, char **argv) {
    import_request s = {0};
    launch job;
    int status = parse_import(&s, argc, argv);
    if (status >= 0) return status;
    launch_catch_signals();
    status = launch_start(&job);
    if (status == 0) status = run_import(&job, &s);
    launch_end(&job);
    return launch_exit_status(status);
}
