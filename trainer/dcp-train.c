/* dcp-train: the command line, the configuration and the exit status. Rank 0 reads the
 * configuration and sends it to all ranks. Only rank 0 reports a failure, in one line. */
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/config.h"
#include "config/reader.h"
#include "config/schema.h"
#include "loop/loop.h"
#include "programs/arguments.h"
#include "programs/fail.h"
#include "programs/program.h"
#include "ranks/board.h"
#include "ranks/launcher.h"
#include "ranks/log.h"
#include "report/report.h"
#include "sample/generate.h"
#include "setup/preview.h"
#include "setup/setup.h"
#include "state/resume.h"
#include "step/external_requests.h"
#include "step/trainer.h"
#include <dcp/mpi.h>

enum { MOST_RANKS = 1 << 20, MOST_ARGUMENTS = 1 << 20 };

typedef struct options {
    const char *path; /* CONFIG.json; METRICS.jsonl for --plot, CKPT for --sample */
    char *const *overrides;
    int n_overrides;
    const char *trace, *plot; /* the files of --trace and --plot; NULL if not given */
    sample_options sample;    /* sample.text is NULL without --sample */
    uint64_t ranks;           /* for --plan */
    uint64_t prove_every;     /* 0 if not given */
    bool plan, print_config, print_keys, dry_run;
} options;

static const char usage[] = "CONFIG.json [key.path=value ...]\n"
                            "--sample TEXT [options] CKPT\n"
                            "--plot FILE.svg METRICS.jsonl\n"
                            "--print-keys";
static const char about[] =
    "Common use:\n"
    "  dcp-train llama.json data.path=corpus --dry-run      what would be done\n"
    "  dcp-run -n 4 -- dcp-train llama.json data.path=corpus\n"
    "  mpirun --oversubscribe -n 4 dcp-train llama.json data.path=corpus\n"
    "  dcp-train --sample 'Once upon' ckpt                  how the model continues it\n"
    "\n"
    "Trains a language model or a classifier, fully sharded over N ranks, and saves its state.\n"
    "Continues automatically from the newest complete checkpoint, whatever number of ranks\n"
    "wrote it.\n"
    "key.path=value overrides the file, such as optimizer.params.lr=1e-4.";
static const char notes[] =
    "device=cuda trains on a GPU, in builds with -DDCP_CUDA=ON: experimental, no GPU has run it.\n"
    "SIGTERM, SIGHUP, SIGINT (Ctrl-C): save after this step and end; a second SIGINT ends at\n"
    "once. SIGUSR1: save after this step and continue. SIGUSR2: save and end with status 75.\n"
    "DCP_RUN_RESTART=1 in the environment, as dcp-run sets it: like checkpoint.resume=auto\n"
    "checkpoint.overwrite=false.";
static const char statuses[] =
    "Exit status: 0 done; 1 no checkpoint in the directory is intact; 2 wrong usage or\n"
    "configuration; 3 failure; 143 stopped by one of these signals, after saving; 75\n"
    "stopped by SIGUSR2, after saving: run it again.";

static int misuse(const char *what) {
    if (program_rank() == 0) program_note("%s; try 'dcp-train --help'", what);
    return PROGRAM_USAGE;
}

static bool is_sampling(const options *o) { return o->sample.text != NULL; }

static int check_options(const options *o, const char *ranks, int n_args) {
    if (o->print_keys + o->print_config + o->plan + o->dry_run + (o->plot != NULL) +
            is_sampling(o) >
        1)
        return misuse("--print-keys, --print-config, --plan, --dry-run, --plot and --sample: one "
                      "at a time");
    if (o->print_keys && n_args > 0) return misuse("--print-keys takes no CONFIG.json");
    if (o->trace && (o->print_config || o->plan || o->plot || is_sampling(o)))
        return misuse("--trace goes with training");
    if (o->prove_every &&
        (o->print_config || o->plan || o->plot || o->print_keys || is_sampling(o)))
        return misuse("--prove-every goes with training");
    if (ranks && !o->plan) return misuse("--ranks goes with --plan");
    if (o->plot && n_args != 1)
        return misuse("--plot takes the drawing's name and one METRICS.jsonl");
    if (is_sampling(o) && n_args != 1) return misuse("--sample takes the text and one CKPT");
    return -1;
}

/* The values of --sample's options; NULL if not given. */
typedef struct sample_words {
    const char *tokens, *temperature, *seed;
} sample_words;

/* Returns 0, or PROGRAM_USAGE after a message. */
static int read_temperature(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= 0.0 && isfinite(*out)) return 0;
    return program_refuse("--temperature: '%s' is not a number of at least 0", text);
}

/* Returns 0, or PROGRAM_USAGE after a message. */
static int read_sample(const sample_words *words, sample_options *out) {
    int status = 0;
    if (!out->text && (out->ids || words->tokens || words->temperature || words->seed))
        return misuse("--ids, --tokens, --temperature and --seed go with --sample");
    if (words->tokens)
        status = program_count_parse("--tokens", words->tokens, 1, INT32_MAX, &out->tokens);
    if (words->seed && !status)
        status = program_count_parse("--seed", words->seed, 0, INT64_MAX, &out->seed);
    if (words->temperature && !status)
        status = read_temperature(words->temperature, &out->temperature);
    return status;
}

/* Reads the arguments that are not options. Returns -1 to continue, or the exit status. */
static int read_arguments(char *const *args, int n, options *out) {
    if (n == 0) return misuse("CONFIG.json is missing");
    out->path = out->sample.ckpt = args[0];
    out->overrides = args + 1;
    out->n_overrides = n - 1;
    return -1;
}

/* Reads the whole command line. Returns -1 to continue, or the exit status. */
static int read_command_line(int argc, char **argv, options *out) {
    const char *ranks = NULL, *prove = NULL;
    sample_words words = {0};
    *out = (options){.ranks = 1};
    const program_option table[] = {
        PROGRAM_FLAG("print-config", "show every key with its effective value", &out->print_config),
        PROGRAM_FLAG("print-keys", "show every key with its values, its default and its meaning",
                     &out->print_keys),
        PROGRAM_FLAG("dry-run",
                     "check configuration, model, data and the checkpoint to continue\n"
                     "                           from, and report what would be done",
                     &out->dry_run),
        PROGRAM_FLAG("plan",
                     "show units, memory and traffic of a rank, and which GPUs fit,\n"
                     "                           without starting any",
                     &out->plan),
        PROGRAM_VALUE("ranks", "N", "the number of ranks for --plan (1)", &ranks),
        PROGRAM_VALUE("trace", "FILE",
                      "write what each rank did when, for ui.perfetto.dev or\n"
                      "                           chrome://tracing",
                      &out->trace),
        PROGRAM_VALUE("prove-every", "N",
                      "print the state id after every N steps: a checksum of the whole\n"
                      "                           state, which each save has, too",
                      &prove),
        PROGRAM_VALUE("plot", "FILE.svg", "draw loss, speed and stalls from a METRICS.jsonl",
                      &out->plot),
        PROGRAM_VALUE("sample", "TEXT", "continue a text by the model of a checkpoint",
                      &out->sample.text),
        PROGRAM_FLAG("ids", "with --sample: TEXT and the output are token ids", &out->sample.ids),
        PROGRAM_VALUE("tokens", "N", "how many tokens --sample adds, at most (100)", &words.tokens),
        PROGRAM_VALUE("temperature", "T",
                      "draw each token by chance, from probabilities that a higher T\n"
                      "                           makes more alike (0: take the likeliest)",
                      &words.temperature),
        PROGRAM_VALUE("seed", "S", "with --temperature: the seed of the random numbers (0)",
                      &words.seed),
        {0},
    };
    const program_command command = {.name = "dcp-train",
                                     .usage = usage,
                                     .about = about,
                                     .options = table,
                                     .notes = notes,
                                     .statuses = statuses};
    char **args;
    int n;
    int status = program_arguments_parse(&command, argc, argv, 0, MOST_ARGUMENTS, &args, &n);
    if (status >= 0) return status;
    if (prove && program_count_parse("--prove-every", prove, 1, INT64_MAX, &out->prove_every) != 0)
        return PROGRAM_USAGE;
    status = check_options(out, ranks, n);
    if (status < 0 && read_sample(&words, &out->sample) != 0) return PROGRAM_USAGE;
    if (status >= 0 || out->print_keys) return status;
    if (ranks && program_count_parse("--ranks", ranks, 1, MOST_RANKS, &out->ranks) != 0)
        return PROGRAM_USAGE;
    return read_arguments(args, n, out);
}

static const char own_steps[] =
    "restarted by dcp-run: continuing from the newest step, ignoring checkpoint.resume=%s";

/* If dcp-run restarts a run that has published a step, the run continues from its newest step.
 * Following checkpoint.resume again would lose that step. */
static int go_on_after_restart(config *c, dcp_error *err) {
    int status = ranks_launcher_takes_over() ? config_take_over(c, err) : DCP_OK;
    if (status != DCP_OK || !ranks_launcher_continues()) return status;
    if (strcmp(c->resume, "auto") != 0) ranks_info(0, own_steps, c->resume);
    return config_resume_newest(c, err);
}

static const char requeued[] =
    "continuing from the newest step, which a run with exactly this configuration has saved, "
    "ignoring checkpoint.resume=%s; to follow checkpoint.resume again, use another checkpoint.dir";

/* Collective. Makes the run continue from its newest step even if dcp-run did not notice that an
 * earlier start published a step, or if the job was requeued. */
static int go_on_from_own(config *c, dcp_error *err) {
    dcp_comm *dcp;
    if (c->restarted || strcmp(c->resume, "auto") == 0) return DCP_OK;
    int status = ranks_agree(MPI_COMM_WORLD, dcp_comm_from_mpi(MPI_COMM_WORLD, &dcp, err), err);
    if (status != DCP_OK) return status;
    state_ownership own = STATE_OWN_NONE;
    status = state_resume_find_own(c, dcp, MPI_COMM_WORLD, &own, err);
    if (own) {
        ranks_info(program_rank(), own == STATE_OWN_LAUNCH ? own_steps : requeued, c->resume);
        status = ranks_agree(MPI_COMM_WORLD, config_resume_newest(c, err), err);
    }
    dcp_comm_destroy(dcp);
    return status;
}

/* Loads the configuration, and reports how DeepSpeed's keys were understood. *wrong: more lines for
 * the message of a failure, or NULL; free it with free(). */
static int load_config(const options *a, int world, config **out, char **wrong, dcp_error *err) {
    char *rest = NULL;
    const int status = config_load(a->path, a->overrides, a->n_overrides, world, out, wrong, err);
    if (status != DCP_OK || !*wrong) return status;
    for (char *line = strtok_r(*wrong, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        ranks_warn(0, "%s", line);
    free(*wrong);
    *wrong = NULL;
    return DCP_OK;
}

static int read_config(const options *a, config **own, char **text, char **wrong, dcp_error *err) {
    int world;
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    int status = load_config(a, world, own, wrong, err);
    if (status == DCP_OK) status = go_on_after_restart(*own, err);
    if (status == DCP_OK) status = config_pack(*own, text, err);
    return status;
}

/* Collective. Rank 0 loads the configuration, and sends it to all ranks. *wrong: on rank 0, the
 * same as in load_config. */
static int share_config(const options *a, int rank, config **out, char **wrong, dcp_error *err) {
    char *text = NULL;
    config *own = NULL;
    int status = rank == 0 ? read_config(a, &own, &text, wrong, err) : DCP_OK;
    status = ranks_agree(MPI_COMM_WORLD, status, err);
    if (status != DCP_OK) goto free_own;
    uint64_t bytes = text ? strlen(text) + 1 : 0;
    MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank != 0) text = malloc(bytes);
    status = ranks_agree(MPI_COMM_WORLD, text ? DCP_OK : core_fail_memory(err, bytes), err);
    if (status != DCP_OK) goto free_own;
    MPI_Bcast(text, (int)bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
    status = ranks_agree(MPI_COMM_WORLD, rank == 0 ? DCP_OK : config_unpack(text, &own, err), err);
    if (status == DCP_OK) status = go_on_from_own(own, err);
    if (status == DCP_OK) {
        *out = own;
        own = NULL;
    }
free_own:
    config_free(own);
    free(text);
    return status;
}

static void print_config(const config *c, int rank) {
    if (rank != 0) return;
    char *text = json_dumps(c->tree, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (text) puts(text);
    free(text);
    if (c->ring)
        ranks_info(rank,
                   "zero_optimization.ring: gradients are added in an order that depends on the "
                   "number of ranks, so losses and checkpoints do too");
}

/* Warns if the run ends before the warm-up does. This is not an error, because the user may intend
 * to extend the run later. */
static void warn_of_warmup(const config *c, int rank) {
    if (c->warmup_steps > c->max_steps)
        ranks_warn(rank,
                   "scheduler.params.warmup_steps: a warm-up of %" PRIu64
                   " steps is not over when the run ends with step %" PRIu64
                   ", so the learning rate stays below optimizer.params.lr",
                   c->warmup_steps, c->max_steps);
}

static int train_model(const options *a, const config *c, dcp_error *err) {
    trainer t;
    int status = setup_plan(&t, c, MPI_COMM_WORLD, err);
    t.trace = a->trace;
    t.prove_every = a->prove_every;
    if (status == PROGRAM_DONE) status = a->dry_run ? setup_dry_run(&t, err) : setup_start(&t, err);
    if (status != PROGRAM_DONE)
        ranks_info(t.rank, "%s", err->message);
    else if (!a->dry_run)
        status = loop_run(&t);
    setup_end(&t);
    return status;
}

static int run_configured(const options *a) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    config *c;
    char *wrong = NULL;
    dcp_error err;
    int status = share_config(a, rank, &c, &wrong, &err);
    if (status != DCP_OK) {
        ranks_info(rank, "%s%s", err.message, wrong ? wrong : "");
        free(wrong);
        return ranks_launcher_exit_status(status);
    }
    status = PROGRAM_DONE;
    warn_of_warmup(c, rank);
    if (a->print_config)
        print_config(c, rank);
    else
        status = train_model(a, c, &err);
    config_free(c);
    return status;
}

static int draw_metrics(const options *a) {
    dcp_error err;
    const int status = report_plot(a->path, a->plot, &err);
    if (status != DCP_OK) ranks_info(0, "%s", err.message);
    return status == DCP_OK ? PROGRAM_DONE : status == DCP_ERR_ARG ? PROGRAM_USAGE : PROGRAM_FAILED;
}

static int print_plan(const options *a) {
    config *c;
    char *wrong = NULL;
    dcp_error err;
    int status = load_config(a, (int)a->ranks, &c, &wrong, &err);
    if (status == DCP_OK) {
        status = setup_preview_print(c, (int)a->ranks, &err);
        config_free(c);
    }
    if (status != DCP_OK) ranks_info(0, "%s%s", err.message, wrong ? wrong : "");
    free(wrong);
    return ranks_launcher_exit_status(status);
}

/* Ends this rank if it cannot allocate even a little memory; the launcher then ends the others.
 * Without this check, ranks could wait forever for messages that Open MPI drops for lack of
 * memory. */
static void check_memory(void) {
    const size_t little = (size_t)64 << 20;
    void *memory = mmap(NULL, little, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
        munmap(memory, little);
        return;
    }
    ranks_info(
        0,
        "rank %d: out of memory before the start: less than %zu MiB are available; raise the "
        "limit (ulimit -v), or use fewer ranks per host",
        program_rank(), little >> 20);
    ranks_launcher_end(PROGRAM_FAILED);
    MPI_Abort(MPI_COMM_WORLD, PROGRAM_FAILED);
}

static int check_world(void) {
    dcp_error err;
    int world, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (ranks_launcher_check_world(world, &rank, &err) == DCP_OK) return PROGRAM_DONE;
    ranks_info(rank, "%s", err.message);
    return PROGRAM_USAGE;
}

static int run_program(int argc, char **argv) {
    options o;
    signal(SIGPIPE, SIG_IGN); /* training continues if the reader of its output is gone */
    program_survive_file_limit();
    int status = read_command_line(argc, argv, &o);
    if (status >= 0) return status;
    if (o.plot || o.plan || o.print_keys || is_sampling(&o)) {
        if (program_rank() != 0) return PROGRAM_DONE;
        if (o.print_keys) config_schema_print();
        if (o.print_keys) return PROGRAM_DONE;
        if (is_sampling(&o)) return sample_generate(&o.sample);
        return o.plot ? draw_metrics(&o) : print_plan(&o);
    }
    if (!o.print_config && !o.dry_run && (status = step_requests_catch()) != 0)
        return program_fail(PROGRAM_FAILED, "cannot start a thread: %s", strerror(status));
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided); /* a separate thread saves */
    ranks_board_reach(RANKS_PHASE_STARTED);
    check_memory();
    status = check_world();
    if (status == PROGRAM_DONE) status = run_configured(&o);
    /* before MPI_Finalize: once one rank has ended, the launcher kills the ranks that have not */
    ranks_launcher_end(status);
    MPI_Finalize();
    return status;
}

int main(int argc, char **argv) {
    ranks_launcher_begin();
    const int status = run_program(argc, argv);
    ranks_launcher_end(status);
    return status;
}
