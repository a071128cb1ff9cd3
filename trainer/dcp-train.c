/* dcp-train: configuration, and the exit status. Rank 0 reads the configuration, so
 * that all ranks have the same; failures are told by rank 0 alone, in one line. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree.h"
#include "common/say.h"
#include "config/config.h"
#include "options.h"
#include "programs/fail.h"
#include "report/plot.h"
#include "setup/preview.h"
#include "stdout.h"
#include "step/signals.h"
#include "step/trainer.h"

/* What dcp-run sets when it starts again a run that has published a step: the run goes on from
 * there, where repeating checkpoint.resume would lose what was done since. */
static int go_on_after_restart(config *c, dcp_error *err) {
    const char *set = getenv("DCP_RUN_RESTART");
    if (!set || strcmp(set, "1") != 0 || strcmp(c->resume, "auto") == 0) return DCP_OK;
    say(0, "restarted by dcp-run: going on from the newest step, not by checkpoint.resume=%s",
        c->resume);
    return config_resume_newest(c, err);
}

static int read_config(const options *a, config **own, char **text, dcp_error *err) {
    int status = config_load(a->path, a->overrides, a->n_overrides, own, err);
    if (status == DCP_OK) status = go_on_after_restart(*own, err);
    if (status == DCP_OK) status = config_pack(*own, text, err);
    return status;
}

/* Rank 0 reads, all ranks get the same. */
static int share_config(const options *a, int rank, config **out, dcp_error *err) {
    char *text = NULL;
    config *own = NULL;
    int status = agree(MPI_COMM_WORLD, rank == 0 ? read_config(a, &own, &text, err) : DCP_OK, err);
    if (status != DCP_OK) goto free_own;
    uint64_t bytes = text ? strlen(text) + 1 : 0;
    MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank != 0) text = malloc(bytes);
    status = agree(MPI_COMM_WORLD, text ? DCP_OK : core_fail_memory(err, bytes), err);
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
    if (c->ring)
        say(rank, "zero_optimization.ring: gradients are added in an order that depends on the "
                  "number of ranks, so losses and checkpoints do too");
}

/* A longer run may be what is meant later, so it is no error. */
static void warn_of_warmup(const config *c, int rank) {
    if (c->warmup_steps > c->max_steps)
        say_warning(rank,
                    "scheduler.params.warmup_steps: a warm-up of %" PRIu64
                    " steps is not over when the run ends with step %" PRIu64
                    ", so the learning rate stays below optimizer.params.lr",
                    c->warmup_steps, c->max_steps);
}

static int train(const options *a, const config *c, dcp_error *err) {
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

static int run(const options *a) {
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
    warn_of_warmup(c, rank);
    if (a->print_config)
        print_config(c, rank);
    else
        status = train(a, c, &err);
    config_free(c);
    return status;
}

static int draw(const options *a) {
    dcp_error err;
    const int status = plot_metrics(a->path, a->plot, &err);
    if (status != DCP_OK) say(0, "%s", err.message);
    return status == DCP_OK ? EXIT_DONE : status == DCP_ERR_ARG ? EXIT_USAGE : EXIT_FAILED;
}

static int plan(const options *a) {
    config *c;
    dcp_error err;
    int status = config_load(a->path, a->overrides, a->n_overrides, &c, &err);
    if (status == DCP_OK) {
        status = planned_print(c, a->ranks, &err);
        config_free(c);
    }
    if (status != DCP_OK) say(0, "%s", err.message);
    return status == DCP_OK ? EXIT_DONE : status == DCP_ERR_NO_MEMORY ? EXIT_FAILED : EXIT_USAGE;
}

/* What one process does alone. */
static int run_alone(const options *a) {
    if (a->print_help) fputs(options_help, stdout);
    if (a->print_version) printf("dcp-train %s\n", dcp_version());
    return stdout_end("dcp-train", a->plot ? draw(a) : a->plan ? plan(a) : EXIT_DONE);
}

/* Set by launchers: whether this is the process that tells of misuse. */
static int is_first(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    return !rank || strcmp(rank, "0") == 0;
}

int main(int argc, char **argv) {
    signals_hold();
    options a;
    const int is_loud = is_first();
    if (options_parse(argc, argv, is_loud, &a) != 0) return EXIT_USAGE;
    if (a.print_help || a.print_version || a.plot || a.plan)
        return is_loud ? run_alone(&a) : EXIT_DONE;
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided); /* saves have a thread */
    const int status = run(&a);
    MPI_Finalize();
    return stdout_end("dcp-train", status);
}
