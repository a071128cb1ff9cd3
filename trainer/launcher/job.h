/* The processes of one start, and what they report. Each host has an agent. mpirun is a child of
 * this host's agent. The ranks are descendants of mpirun here, and of its daemons on other
 * hosts. */
#pragma once

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "launcher/agent/folders.h"
#include "launcher/agent/ranks.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/link.h"
#include "launcher/logs.h"

/* A probe checks whether hosts still answer (probe.c). */

enum { LAUNCHER_PROBED = 256, LAUNCHER_PROBE_S = 5 };

typedef struct launcher_probe {
    const launcher_family *family;
    const char *hosts[LAUNCHER_PROBED]; /* owned by the caller */
    bool reached[LAUNCHER_PROBED];      /* set by launcher_probe_finish */
    size_t n;
    pid_t pids[LAUNCHER_PROBED];
    double end;
    launcher_folders folders;
} launcher_probe;

/* Runs one mpirun for each of the n hosts, all at the same time; each starts a process on its host.
 * They have `limit_s` to do so. */
void launcher_probe_begin(launcher_probe *probe, double limit_s);
/* Waits until all these mpiruns have ended, or the limit has passed. A host on which no process
 * could be started was not reached. */
void launcher_probe_finish(launcher_probe *probe);

/* The processes of a start. */

enum { LAUNCHER_REASON = 1280 };

/* The reports of the ranks about the end of a start. */
typedef struct launcher_end_report {
    char reason[LAUNCHER_REASON]; /* why they failed; "": they gave no reason */
    bool is_final;                /* they request that no restart be tried */
    bool reports;                 /* some rank reports its status */
    bool statuses[256];           /* the statuses that ranks have reported */
} launcher_end_report;

/* Returns true if `status` can come from a rank: a rank has reported it, or the program does not
 * report any statuses. */
bool launcher_end_report_has(const launcher_end_report *told, int status);

typedef struct launcher_rank {
    pid_t pid; /* 0: has not appeared */
    int fd;    /* pidfd of a rank on this host; -1: none */
    bool is_gone;
    bool is_done;     /* it has reported that it ends with status 0 */
    const char *host; /* its host, as the placement names it; NULL: this host */
    launcher_rank_report report;
} launcher_rank;

typedef struct launcher_job {
    launcher_guard guard;
    launcher_folders folders;
    launcher_listener listener;
    const launcher_placement *placement;
    const char *local;    /* this host's name in the placement; NULL: it is not listed */
    launcher_link *links; /* [0]: to the agent of this host */
    size_t n_links;
    size_t remote_hosts,
        remote_up; /* other hosts with ranks; how many of their agents have connected */
    json_t *sent;  /* messages to all agents so far, to be sent to agents that connect later */
    bool mpirun_lives;
    bool bare_signals; /* as in launcher_family */
    int status;        /* mpirun's exit status; 128 + the signal if a signal killed it */
    int ranks;
    int appeared;                   /* ranks that have appeared */
    int alive;                      /* ranks that have appeared and are not known to be gone */
    bool launched;                  /* mpirun has started ranks */
    int first_gone;                 /* the rank that ended first; -1: none yet */
    int dead;                       /* a rank that ended without reporting its status; -1: none */
    const char *lost;               /* a host whose agent is lost; NULL: none */
    double alive_at;                /* the time of the last message from that host */
    launcher_probe lost_probe;      /* a probe of that host */
    char resumed[RANKS_BOARD_TEXT]; /* where the ranks resumed; "": not reported (yet) */
    int stacks_pending;             /* agents that have yet to send stacks */
    launcher_output *output;        /* for --logs; NULL: none */
    launcher_end_report end_report;
    char **command; /* mpirun's command line without the program; freed by launcher_job_free */
    launcher_rank *members; /* [ranks] */
} launcher_job;

/* Starts mpirun, with the signal mask `mask`, for the ranks of the placement. The placement must
 * outlive the job. mpirun writes to `output`, which then belongs to the job; NULL: to dcp-run's own
 * streams. Returns 0, or -1 after a message. */
int launcher_job_start(launcher_job *job, const launcher_family *family,
                       const launcher_placement *placement, char *const *program,
                       const sigset_t *mask, launcher_output *output);

/* Lists descriptors to poll, at most `room`; returns how many. */
size_t launcher_job_list(const launcher_job *job, struct pollfd *polled, size_t room);
/* Receives the messages of agents. */
void launcher_job_receive(launcher_job *job);

/* Sends a message, which is freed, to all agents, including agents that connect later. */
void launcher_job_send(launcher_job *job, json_t *message);
/* Sends a message of this kind to the agent of this host. */
void launcher_job_send_local(launcher_job *job, const char *kind);
/* Sends a signal to every rank that is alive; SIGTERM is also sent to ranks that appear later. */
void launcher_job_signal_ranks(launcher_job *job, int signal);
/* Requests the stacks of all ranks, which are printed when they arrive. */
void launcher_job_request_stacks(launcher_job *job, int limit_s);

/* Returns true if all ranks have ended well, as shown by their own reports, or by mpirun's status
 * if the program reports nothing. The start is then done, whatever happens to agents, hosts and
 * mpirun. */
bool launcher_job_is_done(const launcher_job *job);

/* Adds to `missing` the hosts whose agents have not connected, as many as fit. */
void launcher_job_list_missing(const launcher_job *job, launcher_probe *missing);

/* Sends SIGKILL to every remaining process of the job, and waits until all of them are gone.
 * Returns 0, or -1 after a message if a process is still alive after `limit_s`. The information
 * about the job remains until launcher_job_free. */
int launcher_job_clear(launcher_job *job, double limit_s);
void launcher_job_free(launcher_job *job);
