/* One start: an agent on each host, mpirun below the one here, the ranks, and what they report. */
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include "launcher/agent/folders.h"
#include "launcher/agent/ranks.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/link.h"
#include "launcher/probe.h"

/* What the ranks of a start have told: why they failed, and with which statuses they ended. */

enum { LAUNCHER_REASON = 1280 };

typedef struct launcher_told {
    char reason[LAUNCHER_REASON]; /* of the last start; "": it told none */
    char before[LAUNCHER_REASON]; /* of the start before it */
    int repeats;                  /* both are the same */
    int is_final;                 /* no restart is to be tried */
    int tells;                    /* the last start's ranks tell their statuses, */
    char statuses[256];           /* these */
} launcher_told;

/* For the next start. */
void launcher_told_begin(launcher_told *told);
/* Once the start has ended. */
void launcher_told_judge(launcher_told *told);

/* Whether `status` may be a rank's: one has told it, or the program tells none at all. */
int launcher_told_has(const launcher_told *told, int status);

/* One start: an agent on each host, mpirun below the one here, and the ranks below mpirun and what
 * it has started on other hosts. */

typedef struct launcher_rank {
    pid_t pid; /* 0: not seen yet */
    int fd;    /* pidfd of a rank on this host; -1: none */
    int is_gone;
    int is_done;      /* it has told that it ends well */
    const char *host; /* of the placement; NULL: this one, and there is no placement */
    launcher_seen seen;
} launcher_rank;

typedef struct launcher_job {
    launcher_guard guard;
    launcher_folders folders;
    launcher_listener listener;
    const launcher_placement *placement;
    const char *local;    /* this host, as the placement names it; NULL: it is not in it */
    launcher_link *links; /* [0]: to the agent here */
    size_t n_links;
    size_t remote_hosts, remote_up; /* how many other hosts take part, and have said so */
    json_t *said;                   /* to all agents while some were missing: for these */
    int mpirun_lives;
    int bare_signals; /* as the family has it */
    int status;       /* mpirun's exit status, 128 + signal where one killed it */
    int ranks;
    int seen;                       /* ranks whose process was found */
    int alive;                      /* of these, not known to be gone */
    int launched;                   /* mpirun has started ranks */
    int first_gone;                 /* the rank that ended first; -1: none yet */
    int dead;                       /* a rank that has ended before it told how; -1: none */
    const char *lost;               /* a host whose agent is lost; NULL: none */
    double alive_at;                /* when what failed was last known to live */
    launcher_probe lost_answers;    /* whether the lost host does */
    char resumed[RANKS_BOARD_TEXT]; /* where it goes on; "": not told (yet) */
    int stacks_asked;               /* agents that have not sent them yet */
    void (*take_stacks)(void *ctx, const char *host, const char *text);
    void *stacks_ctx;
    launcher_told *told;
    char **command;         /* mpirun's, without the program; freed by launcher_job_free */
    launcher_rank *members; /* [ranks] */
} launcher_job;

/* Starts mpirun for the ranks of the placement. Signals are unblocked to `mask` in it. out, err:
 * where its output goes; -1: to ours. 0, or -1 after a message. `told` and `placement` stay the
 * caller's. */
int launcher_job_start(launcher_job *job, const launcher_family *family,
                       const launcher_placement *placement, char *const *program,
                       const sigset_t *mask, launcher_told *told, int out, int err);

/* Descriptors to poll, at most `room`; how many. */
size_t launcher_job_list(const launcher_job *job, struct pollfd *polled, size_t room);
/* Takes what agents say. */
void launcher_job_hear(launcher_job *job);

/* To all agents, also to those that come later; and to the one of this host. `message` is freed. */
void launcher_job_tell(launcher_job *job, json_t *message);
void launcher_job_tell_local(launcher_job *job, const char *kind);
/* Sends a signal to every rank that lives, also to those that appear later where it is SIGTERM. */
void launcher_job_signal_ranks(launcher_job *job, int signal);
/* Asks for the stacks of all ranks, which come to take_stacks. */
void launcher_job_ask_stacks(launcher_job *job, int limit_s);

/* Whether all ranks have ended well, as they have told, or mpirun's status says of those that tell
 * nothing: then the start is done, whatever becomes of agents, hosts and mpirun. */
int launcher_job_is_done(const launcher_job *job);

/* Hosts whose agents have not said that they are there; calls `visit` with each. */
void launcher_job_visit_missing(const launcher_job *job, void (*visit)(void *ctx, const char *host),
                                void *ctx);

/* SIGKILL to whatever is left of the job, and waits until it is gone. 0, or -1 where something of
 * it lives on after `limit_s`, after a message that says what. What is known of the job stays,
 * until launcher_job_free. */
int launcher_job_clear(launcher_job *job, double limit_s);
void launcher_job_free(launcher_job *job);
