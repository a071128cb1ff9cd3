/* dcp-train: command line, configuration, and the exit status. Rank 0 reads the configuration, so
 * that all ranks have the same; failures are told by rank 0 alone, in one line. */
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "config/config.h"
#include "fail.h"
#include "loop/signals.h"
#include "loop/trainer.h"
#include "say.h"
#include "stdout.h"

static const char help[] =
    "Usage: dcp-train CONFIG.json [key.path=value ...]\n"
    "       mpirun -n N dcp-train CONFIG.json [key.path=value ...]\n"
    "\n"
    "Common use:\n"
    "  dcp-train llama.json data.path=corpus --dry-run      what would be done\n"
    "  dcp-run -n 4 -- dcp-train llama.json data.path=corpus\n"
    "\n"
    "Trains a language model or a classifier, fully sharded over N ranks, and saves its state.\n"
    "Goes on by itself from the newest complete checkpoint, whatever number of ranks wrote it.\n"
    "\n"
    "  key.path=value   overrides the file, as optimizer.params.lr=1e-4\n"
    "  --print-config   show every key with its effective value\n"
    "  --dry-run        check configuration, model, data and the checkpoint to go on from, and\n"
    "                   say what would be done\n"
    "  --trace FILE     write what each rank did when, for ui.perfetto.dev or chrome://tracing\n"
    "  --help, --version\n"
    "\n"
    "SIGTERM: save after this step and end. SIGUSR1: save after this step and go on.\n"
    "DCP_RUN_RESTART=1 in the environment, as dcp-run sets it: like checkpoint.resume=auto\n"
    "checkpoint.overwrite=false.\n"
    "Exit status: 0 done; 1 no checkpoint in the directory is intact; 2 wrong usage or\n"
    "configuration; 3 failure; 143 stopped by SIGTERM after saving.\n";

typedef struct arguments {
    const char *path;
    const char *trace;
    char *const *overrides;
    int n_overrides;
    int print_config, dry_run, print_help, print_version;
} arguments;

/* 0, or -1 after a message. Only `loud` prints. */
static int parse(int argc, char **argv, int loud, arguments *out) {
    *out = (arguments){0};
    const struct option table[] = {
        {"print-config", no_argument, &out->print_config, 1},
        {"dry-run", no_argument, &out->dry_run, 1},
        {"trace", required_argument, NULL, 't'},
        {"help", no_argument, &out->print_help, 1},
        {"version", no_argument, &out->print_version, 1},
        {NULL, 0, NULL, 0},
    };
    opterr = loud;
    optind = 1;
    for (int found; (found = getopt_long(argc, argv, "", table, NULL)) != -1;)
        if (found == '?')
            return -1;
        else if (found == 't')
            out->trace = optarg;
    if (out->print_help || out->print_version) return 0;
    if (optind >= argc) {
        if (loud) fprintf(stderr, "dcp-train: CONFIG.json is missing; see dcp-train --help\n");
        return -1;
    }
    out->path = argv[optind];
    out->overrides = argv + optind + 1;
    out->n_overrides = argc - optind - 1;
    return 0;
}

/* What dcp-run sets when it starts again a run that has published a step: the run goes on from
 * there, where repeating checkpoint.resume would lose what was done since. */
static int go_on_after_restart(config *c, dcp_error *err) {
    const char *set = getenv("DCP_RUN_RESTART");
    if (!set || strcmp(set, "1") != 0 || strcmp(c->resume, "auto") == 0) return DCP_OK;
    say(0, "restarted by dcp-run: going on from the newest step, not by checkpoint.resume=%s",
        c->resume);
    return config_resume_newest(c, err);
}

static int read_config(const arguments *a, config **own, char **text, dcp_error *err) {
    int status = config_load(a->path, a->overrides, a->n_overrides, own, err);
    if (status == DCP_OK) status = go_on_after_restart(*own, err);
    if (status == DCP_OK) status = config_pack(*own, text, err);
    return status;
}

/* Rank 0 reads, all ranks get the same. */
static int share_config(const arguments *a, int rank, config **out, dcp_error *err) {
    char *text = NULL;
    config *own = NULL;
    int status = agree(MPI_COMM_WORLD, rank == 0 ? read_config(a, &own, &text, err) : DCP_OK, err);
    if (status != DCP_OK) goto free_own;
    uint64_t bytes = text ? strlen(text) + 1 : 0;
    MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank != 0) text = malloc(bytes);
    status = agree(MPI_COMM_WORLD, text ? DCP_OK : trainer_fail_memory(err, bytes), err);
    if (status != DCP_OK) goto free_own;
    MPI_Bcast(text, (int)bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
    status = agree(MPI_COMM_WORLD, rank == 0 ? DCP_OK : config_unpack(text, &own, err), err);
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
}

static int train(const arguments *a, const config *c, dcp_error *err) {
    trainer t;
    int status = trainer_plan(&t, c, MPI_COMM_WORLD, err);
    t.trace = a->trace;
    if (status == EXIT_DONE)
        status = a->dry_run ? trainer_foretell(&t, err) : trainer_start(&t, err);
    if (status != EXIT_DONE)
        say(t.rank, "%s", err->message);
    else if (!a->dry_run)
        status = trainer_loop(&t);
    trainer_end(&t);
    return status;
}

static int run(const arguments *a) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    config *c;
    dcp_error err;
    int status = share_config(a, rank, &c, &err);
    if (status != DCP_OK) {
        say(rank, "%s", err.message);
        return status == DCP_ERR_NO_MEMORY ? EXIT_FAILED : EXIT_USAGE;
    }
    status = EXIT_DONE;
    if (a->print_config)
        print_config(c, rank);
    else
        status = train(a, c, &err);
    config_free(c);
    return status;
}

/* Set by launchers: whether this is the process that tells of misuse. */
static int is_first(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    return !rank || strcmp(rank, "0") == 0;
}

int main(int argc, char **argv) {
    signals_hold();
    arguments a;
    const int loud = is_first();
    if (parse(argc, argv, loud, &a) != 0) return EXIT_USAGE;
    if (a.print_help || a.print_version) {
        if (loud && a.print_help) fputs(help, stdout);
        if (loud && a.print_version) printf("dcp-train %s\n", dcp_version());
        return stdout_end("dcp-train", EXIT_DONE);
    }
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided); /* saves have a thread */
    const int status = run(&a);
    MPI_Finalize();
    return stdout_end("dcp-train", status);
}
