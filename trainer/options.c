#include "options.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 1 << 20 };

const char options_help[] =
    "Usage: dcp-train CONFIG.json [key.path=value ...]\n"
    "       mpirun -n N dcp-train CONFIG.json [key.path=value ...]\n"
    "       dcp-train --plot FILE.svg METRICS.jsonl\n"
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
    "  --plan           show units, memory and traffic of a rank, without starting any\n"
    "  --ranks N        how many ranks --plan is of (1)\n"
    "  --trace FILE     write what each rank did when, for ui.perfetto.dev or chrome://tracing\n"
    "  --plot FILE.svg  draw loss, speed and stalls of saves from a METRICS.jsonl\n"
    "  --help, --version\n"
    "\n"
    "device=cuda trains on a GPU, in builds with -DDCP_CUDA=ON: experimental, no GPU has run it.\n"
    "SIGTERM: save after this step and end. SIGUSR1: save after this step and go on.\n"
    "DCP_RUN_RESTART=1 in the environment, as dcp-run sets it: like checkpoint.resume=auto\n"
    "checkpoint.overwrite=false.\n"
    "Exit status: 0 done; 1 no checkpoint in the directory is intact; 2 wrong usage or\n"
    "configuration; 3 failure; 143 stopped by SIGTERM after saving.\n";

static int misuse(int is_loud, const char *what) {
    if (is_loud) fprintf(stderr, "dcp-train: %s; see dcp-train --help\n", what);
    return -1;
}

/* 0, or -1 where it is no number of ranks. */
static int read_ranks(const char *text, int *out) {
    char *end;
    const long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > MOST_RANKS) return -1;
    *out = (int)n;
    return 0;
}

/* Options that take a value have a letter of their own. */
static int read_options(int argc, char **argv, int is_loud, options *out) {
    const struct option table[] = {
        {"print-config", no_argument, &out->print_config, 1},
        {"plan", no_argument, &out->plan, 1},
        {"ranks", required_argument, NULL, 'r'},
        {"dry-run", no_argument, &out->dry_run, 1},
        {"trace", required_argument, NULL, 't'},
        {"plot", required_argument, NULL, 'p'},
        {"help", no_argument, &out->print_help, 1},
        {"version", no_argument, &out->print_version, 1},
        {NULL, 0, NULL, 0},
    };
    optind = 1;
    for (int found; (found = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        if (found == '?') return -1;
        if (found == 'r' && read_ranks(optarg, &out->ranks) != 0)
            return misuse(is_loud, "--ranks takes a number from 1 to 1048576");
        if (found == 't') out->trace = optarg;
        if (found == 'p') out->plot = optarg;
    }
    return 0;
}

int options_parse(int argc, char **argv, int is_loud, options *out) {
    *out = (options){0};
    opterr = is_loud;
    if (read_options(argc, argv, is_loud, out) != 0) return -1;
    if (out->print_help || out->print_version) return 0;
    if (out->print_config + out->plan + out->dry_run + (out->plot != NULL) > 1)
        return misuse(is_loud, "--print-config, --plan, --dry-run and --plot: one at a time");
    if (out->trace && (out->print_config || out->plan || out->plot))
        return misuse(is_loud, "--trace goes with training");
    if (out->ranks && !out->plan) return misuse(is_loud, "--ranks goes with --plan");
    if (!out->ranks) out->ranks = 1;
    if (out->plot && argc - optind != 1)
        return misuse(is_loud, "--plot takes the drawing's name and one METRICS.jsonl");
    if (optind >= argc) return misuse(is_loud, "CONFIG.json is missing");
    out->path = argv[optind];
    out->overrides = argv + optind + 1;
    out->n_overrides = argc - optind - 1;
    return 0;
}
