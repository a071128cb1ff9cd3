#include "launcher/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/ask_program.h"
#include "programs/program.h"

/* A lost host is noticed after 4 s without a word of dcp-run: it must not wait longer than this. */
static const double ask_limit_s = 2;

static int ask_scontrol(char *const *argv, char *text, size_t size) {
    return launcher_ask(argv, ask_limit_s, text, size);
}

/* Of a job on this node alone mpirun asks nothing of Slurm. */
static int has_other_nodes(void) {
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    return !getenv("SLURMD_NODENAME") || !nodes || strcmp(nodes, "1") != 0;
}

int launcher_slurm_check(void) {
    static const char *const needed[] = {"srun", "scontrol"};
    char *const ping[] = {"scontrol", "ping", NULL};
    char text[512];
    if (!has_other_nodes()) return 0;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!launcher_ask_finds(needed[i]))
            return program_fail(PROGRAM_FAILED,
                                "this is Slurm job %s, and %s, which starts ranks on its nodes, is "
                                "not in PATH: install Slurm's client programs, or name hosts by "
                                "--hosts",
                                getenv("SLURM_JOB_ID"), needed[i]);
    if (ask_scontrol(ping, text, sizeof text) == 0) return 0;
    return program_fail(PROGRAM_FAILED,
                        "this is Slurm job %s, and no controller of Slurm answers ('scontrol "
                        "ping'): start slurmctld, or outside of a job unset SLURM_JOB_ID",
                        getenv("SLURM_JOB_ID"));
}

/* A step has its CPUs for itself, and that of the last start may still be ending. */
void launcher_slurm_set_environment(void) {
    if (getenv("SLURM_JOB_ID")) setenv("SLURM_OVERLAP", "1", 1);
}

void launcher_slurm_pass(const char *name) {
    const char *passed = getenv("SLURM_EXPORT_ENV");
    char *more = NULL;
    if (!passed || strncmp(passed, "ALL", 3) == 0) return;
    const int is_empty = !*passed || strcmp(passed, "NONE") == 0 || strcmp(passed, "NIL") == 0;
    if (asprintf(&more, "%s%s%s", is_empty ? "" : passed, is_empty ? "" : ",", name) < 0) return;
    setenv("SLURM_EXPORT_ENV", more, 1);
    free(more);
}

/* What follows `key` in the text; NULL where it has none. */
static const char *value_of(const char *text, const char *key) {
    const char *found = strstr(text, key);
    return found ? found + strlen(key) : NULL;
}

static int begins_with(const char *text, const char *word) {
    return text && strncmp(text, word, strlen(word)) == 0;
}

/* The lines of `scontrol show job` that say so. While a preempted job has its grace time it runs
 * on, with PreemptTime set; when it is put back into the queue, Restarts is counted. */
static int tells_preemption(const char *text) {
    const char *eligible = value_of(text, "\n   PreemptEligibleTime=");
    const char *when = eligible ? value_of(eligible, " PreemptTime=") : NULL;
    const char *requeue = value_of(text, "\n   Requeue=");
    const char *restarts = requeue ? value_of(requeue, " Restarts=") : NULL;
    const char *ours = getenv("SLURM_RESTART_COUNT");
    if (begins_with(value_of(text, "\n   JobState="), "CANCELLED")) return 0;
    if (when && !begins_with(when, "None")) return 1;
    if (begins_with(value_of(text, "\n   JobState="), "PREEMPTED")) return 1;
    return restarts && atol(restarts) > (ours ? atol(ours) : 0);
}

int launcher_slurm_is_preempted(void) {
    char *job = getenv("SLURM_JOB_ID");
    char *const show[] = {"scontrol", "show", "job", job, NULL};
    char text[8192];
    if (!job || !*job) return 0;
    return ask_scontrol(show, text, sizeof text) == 0 && tells_preemption(text);
}
