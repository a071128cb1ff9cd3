#include "launcher/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/processes.h"
#include "launcher/mpirun.h"
#include "programs/program.h"

/* Values of ranks_board_entry.told. A rank that ends with a status reports ENDED + status. */
enum { BEGUN = 1, ENDED = 2 };

/* Only the first reason counts. "final: " at its beginning rules out a restart. */
static void take_reason(launcher_end_report *told, const char *reason) {
    static const char final[] = "final: ";
    if (*told->reason) return;
    told->is_final = strncmp(reason, final, sizeof final - 1) == 0;
    snprintf(told->reason, sizeof told->reason, "%s",
             reason + (told->is_final ? sizeof final - 1 : 0));
}

static void take_word(launcher_end_report *told, long word) {
    if (word >= BEGUN) told->reports = true;
    if (word >= ENDED && word - ENDED < (long)(sizeof told->statuses / sizeof *told->statuses))
        told->statuses[word - ENDED] = true;
}

bool launcher_end_report_has(const launcher_end_report *told, int status) {
    const int n = sizeof told->statuses / sizeof *told->statuses;
    return !told->reports || (status >= 0 && status < n && told->statuses[status]);
}

/* Returns true if some rank has reported the status with which it ends. */
static bool some_have_ended(const launcher_end_report *told) {
    return memchr(told->statuses, 1, sizeof told->statuses) != NULL;
}

enum { EXIT_UNKNOWN = 3, LOOK_MS = 100, SPARE_LINKS = 16 };

static size_t count_remote(const launcher_placement *placement, const char **local) {
    size_t n = 0;
    for (size_t i = 0; i < placement->n; i++) {
        const launcher_host *host = &placement->at[i];
        if (host->slots > 0 && !*local && launcher_hosts_is_local(host->name))
            *local = host->name;
        else if (host->slots > 0)
            n++;
    }
    return n;
}

static int fail_to_start(launcher_job *job) {
    launcher_folders_remove(&job->folders);
    launcher_folders_free(&job->folders);
    launcher_listener_close(&job->listener);
    launcher_mpirun_free(job->command);
    launcher_output_close(job->output);
    job->output = NULL;
    free(job->links);
    free(job->members);
    return -1;
}

int launcher_job_start(launcher_job *job, const launcher_family *family,
                       const launcher_placement *placement, char *const *program,
                       const sigset_t *mask, launcher_output *output) {
    *job = (launcher_job){.ranks = placement->ranks,
                          .placement = placement,
                          .first_gone = -1,
                          .dead = -1,
                          .listener = {.fd = -1},
                          .status = EXIT_UNKNOWN,
                          .bare_signals = family->bare_signals,
                          .output = output};
    job->remote_hosts = count_remote(placement, &job->local);
    job->members = calloc((size_t)job->ranks, sizeof *job->members);
    job->links = calloc(1, sizeof *job->links);
    for (int r = 0; job->members && r < job->ranks; r++) job->members[r].fd = -1;
    if (launcher_folders_make(&job->folders) != 0) return fail_to_start(job);
    if (job->remote_hosts && launcher_listener_open(&job->listener) != 0) return fail_to_start(job);
    launcher_guard_name(&job->guard);
    launcher_command command = {.family = family,
                                .placement = placement,
                                .listener = job->remote_hosts ? &job->listener : NULL,
                                .folders = &job->folders,
                                .program = program,
                                .mark = job->guard.mark,
                                .mask = mask,
                                .output = output};
    bool failed = !job->members || !job->links || launcher_mpirun_prepare(&command) != 0;
    launcher_channel channel;
    if (!failed &&
        launcher_guard_start(&job->guard, &channel, &job->folders, family->rank_variables->rank,
                             launcher_mpirun_exec, &command) != 0) {
        fprintf(stderr, "dcp-run: cannot start mpirun: %s\n", strerror(errno));
        failed = true;
    }
    free(command.starter_words);
    job->command = command.argv;
    if (failed) return fail_to_start(job);
    launcher_mpirun_remove_program(&command);
    if (output) launcher_output_started(output);
    launcher_link_open(&job->links[0], channel.fd, false);
    job->links[0].host = job->local;
    job->links[0].state = LAUNCHER_LINK_UP;
    job->n_links = 1;
    job->mpirun_lives = true;
    return 0;
}

size_t launcher_job_list(const launcher_job *job, struct pollfd *polled, size_t room) {
    size_t n = 0;
    if (job->listener.fd >= 0 && room)
        polled[n++] = (struct pollfd){.fd = job->listener.fd, .events = POLLIN};
    for (size_t i = 0; i < job->n_links && n < room; i++) {
        const launcher_channel *channel = &job->links[i].channel;
        if (channel->fd < 0) continue;
        const short behind = launcher_channel_is_behind(channel) ? POLLOUT : 0;
        polled[n++] = (struct pollfd){.fd = channel->fd, .events = (short)(POLLIN | behind)};
    }
    for (int r = 0; r < job->ranks && n < room; r++)
        if (job->members[r].fd >= 0)
            polled[n++] = (struct pollfd){.fd = job->members[r].fd, .events = POLLIN};
    return n;
}

/* Handles ranks of this host that have ended. Wakes the agent and mpirun, which somebody may have
 * stopped, because they have to end the other ranks. */
static void take_ends(launcher_job *job) {
    for (int r = 0; r < job->ranks; r++) {
        struct pollfd ended = {.fd = job->members[r].fd, .events = POLLIN};
        if (ended.fd < 0 || poll(&ended, 1, 0) != 1) continue;
        close(ended.fd);
        job->members[r].fd = -1;
        launcher_job_send_local(job, "wake_child");
    }
}

/* Returns the host of the placement on which an agent runs. Recognizes the host by its node name in
 * Slurm, by the number of its daemon, or by its own name. Daemons are numbered in the order of the
 * host file: Open MPI's mpirun itself is daemon 0, and the other hosts follow; MPICH counts all
 * hosts from 0. Returns NULL if the agent runs on dcp-run's own host, or on a host that is not in
 * the placement. */
static const char *host_of_agent(const launcher_job *job, const json_t *hello) {
    const char *node = launcher_message_text(hello, "node");
    const char *name = launcher_message_text(hello, "host");
    const json_int_t daemon = launcher_message_number(hello, "daemon", -1);
    const json_int_t place = launcher_message_number(hello, "place", -1);
    json_int_t number = 0, places = -1;
    for (size_t i = 0; i < job->placement->n; i++) {
        const launcher_host *host = &job->placement->at[i];
        if (host->slots <= 0) continue;
        places++;
        if (host->name == job->local) continue;
        number++;
        if (*node        ? strcmp(node, host->name) == 0
            : daemon > 0 ? daemon == number
            : place >= 0 ? place == places
                         : strcmp(name, host->name) == 0)
            return host->name;
    }
    return NULL;
}

/* Identifies an agent. Closes the connection if the agent does not have the key, or if its host has
 * no ranks in this start. */
static void take_hello(launcher_job *job, launcher_link *link, const json_t *m) {
    const bool is_ours = strcmp(launcher_message_text(m, "key"), job->listener.key) == 0;
    link->host = is_ours ? host_of_agent(job, m) : NULL;
    if (!link->host) {
        launcher_link_close(link);
        return;
    }
    link->state = LAUNCHER_LINK_UP;
    job->remote_up++;
    const json_t *earlier;
    size_t i;
    json_array_foreach(job->sent, i, earlier)
        launcher_link_send(link, json_incref((json_t *)earlier));
}

static void take_rank(launcher_job *job, const launcher_link *link, const json_t *m) {
    const json_int_t rank = launcher_message_number(m, "rank", -1);
    if (rank < 0 || rank >= job->ranks || job->members[rank].pid) return;
    launcher_rank *member = &job->members[rank];
    member->pid = (pid_t)launcher_message_number(m, "pid", 0);
    member->host = link->host;
    const launcher_process process = {
        .pid = member->pid, .start = (unsigned long long)launcher_message_number(m, "start", 0)};
    if (!link->is_remote) member->fd = launcher_processes_open(&process);
    job->appeared++;
    job->alive++;
    job->launched = true;
    if (job->appeared == job->ranks) launcher_job_send(job, json_pack("{s:s}", "kind", "found"));
}

/* Records a value of ranks_board_entry.told, which may include the status of the rank. */
static void take_told(launcher_job *job, json_int_t rank, long word) {
    if (word == ENDED + PROGRAM_DONE) job->members[rank].is_done = true;
    take_word(&job->end_report, word);
}

static void take_gone(launcher_job *job, const json_t *m) {
    const json_int_t rank = launcher_message_number(m, "rank", -1);
    const json_int_t word = launcher_message_number(m, "told", 0);
    if (rank < 0 || rank >= job->ranks || job->members[rank].is_gone) return;
    job->members[rank].is_gone = true;
    job->alive--;
    if (job->first_gone < 0) job->first_gone = (int)rank;
    if (word == BEGUN && job->dead < 0 && !some_have_ended(&job->end_report)) job->dead = (int)rank;
    take_told(job, rank, (long)word);
}

static void take_board(launcher_job *job, const json_t *m) {
    const char *resumed = launcher_message_text(m, "resumed");
    const json_t *packed;
    size_t i;
    if (*resumed) snprintf(job->resumed, sizeof job->resumed, "%s", resumed);
    json_array_foreach(json_object_get(m, "ranks"), i, packed) {
        int rank;
        launcher_rank_report seen;
        if (launcher_board_unpack(packed, &rank, &seen) != 0 || rank < 0 || rank >= job->ranks)
            continue;
        job->members[rank].report = seen;
        take_told(job, rank, (long)seen.told);
    }
}

static void take_child(launcher_job *job, const launcher_link *link, const json_t *m) {
    if (link->is_remote) return;
    const int status = (int)launcher_message_number(m, "status", 0);
    job->mpirun_lives = false;
    /* with other hosts, mpirun has also waited for ssh or srun, so `waited` does not show that it
     * has started ranks */
    if (job->remote_hosts == 0 && json_is_true(json_object_get(m, "waited"))) job->launched = true;
    job->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (job->bare_signals && (job->status == SIGTERM || job->status == SIGKILL)) job->status += 128;
}

static void take_clear(launcher_job *job, launcher_link *link, const json_t *m) {
    const json_t *word;
    size_t i;
    link->state = LAUNCHER_LINK_CLEAR;
    take_reason(&job->end_report, launcher_message_text(m, "reason"));
    json_array_foreach(json_object_get(m, "told"), i, word)
        take_word(&job->end_report, (long)json_integer_value(word));
}

static void take_stacks(launcher_job *job, const launcher_link *link, const json_t *m) {
    char *titled = NULL;
    if (job->stacks_pending > 0) job->stacks_pending--;
    if (asprintf(&titled, "dcp-run: stacks of the ranks%s%s:\n%s", link->host ? " on " : "",
                 link->host ? link->host : "", launcher_message_text(m, "text")) >= 0)
        launcher_output_stacks(job->output, titled);
    free(titled);
}

static void report_stuck(const launcher_link *link, const json_t *m) {
    fprintf(stderr, "dcp-run: process %s%s%s: SIGKILL does not end it\n",
            launcher_message_text(m, "what"), link->is_remote ? " on " : "",
            link->is_remote ? link->host : "");
}

static void take_message(launcher_job *job, launcher_link *link, const json_t *m) {
    if (launcher_message_is(m, "hello")) {
        if (link->state == LAUNCHER_LINK_NEW) take_hello(job, link, m);
        const int code = (int)launcher_message_number(m, "errno", 0);
        if (code) fprintf(stderr, "dcp-run: cannot start a process: %s\n", strerror(code));
        return;
    }
    if (link->state == LAUNCHER_LINK_NEW) {
        launcher_link_close(link);
        return;
    }
    if (launcher_message_is(m, "rank")) take_rank(job, link, m);
    if (launcher_message_is(m, "gone")) take_gone(job, m);
    if (launcher_message_is(m, "board")) take_board(job, m);
    if (launcher_message_is(m, "launched")) job->launched = true;
    if (launcher_message_is(m, "child")) take_child(job, link, m);
    if (launcher_message_is(m, "clear")) take_clear(job, link, m);
    if (launcher_message_is(m, "stacks")) take_stacks(job, link, m);
    if (launcher_message_is(m, "stuck")) report_stuck(link, m);
}

static void accept_agents(launcher_job *job) {
    for (int fd; (fd = launcher_listener_accept(&job->listener)) >= 0;) {
        launcher_link *more = NULL;
        if (job->n_links < 1 + job->remote_hosts + SPARE_LINKS)
            more = realloc(job->links, (job->n_links + 1) * sizeof *more);
        if (!more) {
            close(fd);
            continue;
        }
        job->links = more;
        launcher_link_open(&job->links[job->n_links++], fd, true);
    }
}

static void forget_strangers(launcher_job *job) {
    size_t n = 1;
    for (size_t i = 1; i < job->n_links; i++) {
        launcher_link *link = &job->links[i];
        if (!link->host && link->channel.fd < 0)
            launcher_link_close(link);
        else
            job->links[n++] = *link;
    }
    job->n_links = n;
}

static void take_loss(launcher_job *job, launcher_link *link) {
    link->loss_is_reported = true;
    if (!link->is_remote) {
        job->mpirun_lives = false;
        fprintf(stderr, "dcp-run: the process that guards the job was killed\n");
        return;
    }
    if (job->lost || job->dead >= 0 || launcher_job_is_done(job)) return;
    job->lost = link->host;
    job->alive_at = link->received_at;
    fprintf(stderr, "dcp-run: host %s is lost: dcp-run received nothing from it for %.1f s\n",
            job->lost, program_now_s() - job->alive_at);
}

/* Returns true if mpirun's status shows success, and no report of a rank contradicts it: the mpirun
 * of Open MPI 5 ends with 0 even if it has lost a host. */
static bool is_believed(const launcher_job *job) {
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].report.told && !job->members[r].is_done) return false;
    return job->status == PROGRAM_DONE;
}

bool launcher_job_is_done(const launcher_job *job) {
    if (job->dead >= 0) return false;
    if (!job->mpirun_lives && job->launched && is_believed(job)) return true;
    for (int r = 0; r < job->ranks; r++)
        if (!job->members[r].is_done) return false;
    return true;
}

void launcher_job_receive(launcher_job *job) {
    accept_agents(job);
    take_ends(job);
    for (size_t i = 0; i < job->n_links; i++) {
        launcher_link *link = &job->links[i];
        for (json_t *m; (m = launcher_link_next(link));) {
            take_message(job, link, m);
            json_decref(m);
        }
        launcher_link_maintain(link);
        if (link->state == LAUNCHER_LINK_LOST && (link->host || !link->is_remote) &&
            !link->loss_is_reported)
            take_loss(job, link);
    }
    forget_strangers(job);
}

void launcher_job_send(launcher_job *job, json_t *message) {
    for (size_t i = 0; i < job->n_links; i++)
        if (job->links[i].state == LAUNCHER_LINK_UP)
            launcher_link_send(&job->links[i], json_incref(message));
    if (job->remote_up < job->remote_hosts) {
        if (!job->sent) job->sent = json_array();
        json_array_append(job->sent, message);
    }
    json_decref(message);
}

void launcher_job_send_local(launcher_job *job, const char *kind) {
    launcher_guard_wake(&job->guard);
    launcher_channel_send(&job->links[0].channel, json_pack("{s:s}", "kind", kind));
}

void launcher_job_signal_ranks(launcher_job *job, int signal) {
    launcher_guard_wake(&job->guard);
    launcher_job_send(job, json_pack("{s:s,s:i}", "kind", "signal", "signal", signal));
}

void launcher_job_request_stacks(launcher_job *job, int limit_s) {
    job->stacks_pending = 0;
    for (size_t i = 0; i < job->n_links; i++)
        job->stacks_pending += job->links[i].state == LAUNCHER_LINK_UP;
    launcher_job_send(job, json_pack("{s:s,s:i}", "kind", "stacks", "limit", limit_s));
}

void launcher_job_list_missing(const launcher_job *job, launcher_probe *missing) {
    for (size_t i = 0; i < job->placement->n; i++) {
        const launcher_host *host = &job->placement->at[i];
        bool is_there = host->slots <= 0 || host->name == job->local;
        for (size_t k = 1; k < job->n_links; k++) is_there |= job->links[k].host == host->name;
        if (!is_there && missing->n < LAUNCHER_PROBED) missing->hosts[missing->n++] = host->name;
    }
}

/* Returns true if the agent has not finished its part, or is lost and may have left processes that
 * are still alive. */
static bool is_waited_for(const launcher_link *link) {
    if (link->state == LAUNCHER_LINK_UP) return true;
    return link->state == LAUNCHER_LINK_LOST && program_now_s() < launcher_link_safe_at(link);
}

/* Waits until all agents have finished their part. Returns 0, or -1 if one of them is still alive
 * at the time `end`. */
static int wait_for_agents(launcher_job *job, double end) {
    for (;;) {
        bool waits = false, lives = false;
        for (size_t i = 0; i < job->n_links; i++) {
            waits |= is_waited_for(&job->links[i]);
            lives |= job->links[i].state == LAUNCHER_LINK_UP;
        }
        if (!waits) return 0;
        if (lives && program_now_s() >= end) return -1;
        struct pollfd polled[64];
        const size_t n = launcher_job_list(job, polled, sizeof polled / sizeof *polled);
        launcher_guard_wake(&job->guard);
        poll(polled, n, LOOK_MS);
        launcher_job_receive(job);
    }
}

/* Kills the ranks of this host that are left, and waits for them. This is needed if the agent of
 * this host was killed. launcher_guard_clear then finds the job's processes by a mark in their
 * environment, so it misses a rank that has overwritten the mark. */
static int wait_for_ranks(const launcher_job *job, double end) {
    for (int r = 0; r < job->ranks; r++) {
        struct pollfd ended = {.fd = job->members[r].fd, .events = POLLIN};
        if (ended.fd >= 0) pidfd_send_signal(ended.fd, SIGKILL, NULL, 0);
        while (ended.fd >= 0 && poll(&ended, 1, LOOK_MS) == 0)
            if (program_now_s() >= end) return -1;
    }
    return 0;
}

int launcher_job_clear(launcher_job *job, double limit_s) {
    const double patience = LAUNCHER_PATIENCE_S + 0.5; /* agents report what is stuck before that */
    const double end = program_now_s() + (limit_s > patience ? limit_s : patience);
    launcher_guard_wake(&job->guard);
    launcher_job_send(job, json_pack("{s:s}", "kind", "end"));
    int left = wait_for_agents(job, end);
    for (size_t i = 0; i < job->n_links; i++) launcher_link_close(&job->links[i]);
    job->n_links = 0;
    if (launcher_guard_clear(&job->guard, end) != 0) left = -1;
    if (left == 0) left = wait_for_ranks(job, end);
    if (left == 0) launcher_folders_remove(&job->folders); /* if the agent could not */
    launcher_folders_free(&job->folders);
    launcher_listener_close(&job->listener);
    launcher_output_close(job->output);
    job->output = NULL;
    return left;
}

void launcher_job_free(launcher_job *job) {
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].fd >= 0) close(job->members[r].fd);
    json_decref(job->sent);
    launcher_mpirun_free(job->command);
    free(job->members);
    free(job->links);
}
