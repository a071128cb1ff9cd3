#include "launcher/agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/processes.h"
#include "launcher/agent/ranks.h"
#include "programs/program.h"

/* Milliseconds between two checks of the ranks and the board, or of processes that are being
 * killed. */
enum {
    FIND_MS = 5,       /* while ranks are still appearing */
    HURRY_MS = 10,     /* after ranks were killed, until their launcher ends */
    STARTING_MS = 20,  /* until the first step is done */
    STEPPING_MS = 250, /* after the first step */
    LEAST_KILL_MS = 5, /* at first while processes are being killed; the interval then grows */
    MOST_KILL_MS = 1000,
    STACKS_BYTES = 3 << 20
};

typedef struct agent {
    const launcher_agent_work *work;
    launcher_channel *channel;
    launcher_board board;
    launcher_local_ranks ranks;
    int signals;
    pid_t child;
    bool child_ended;
    bool all_found;  /* dcp-run has seen all ranks */
    bool is_failing; /* ranks were killed, and their launcher should notice it soon */
    bool is_starting;
    double find_until; /* the time until which ranks are searched for often, unless all are found */
    double received_at,
        sent_at; /* when the last message from dcp-run arrived; when the last beat was sent */
    struct {
        pid_t pid; /* the process that collects the stacks; 0: none */
        int fd;
        char *text;
        size_t n;
    } stacks;
} agent;

static void send(agent *a, json_t *message) { launcher_channel_send(a->channel, message); }

static void reap_all(agent *a) {
    for (siginfo_t info;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        const pid_t pid = info.si_pid;
        int status;
        const bool waited = pid == a->child && launcher_processes_waited(pid) != 0;
        if (waitpid(pid, &status, 0) != pid || pid != a->child) continue;
        a->child_ended = true;
        launcher_ranks_report(&a->ranks, &a->board, a->channel);
        send(a, json_pack("{s:s,s:i,s:b}", "kind", "child", "status", status, "waited", waited));
    }
}

static bool has_children(void) {
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void read_signals(const agent *a) {
    struct signalfd_siginfo info;
    while (read(a->signals, &info, sizeof info) > 0) {
    }
}

/* Starts a child that collects the stacks: it may have to wait for debuggers, which the agent must
 * not do. */
static void begin_stacks(agent *a, double limit_s) {
    int ends[2];
    if (a->stacks.pid || pipe(ends) != 0) return;
    pid_t *pids = calloc(a->ranks.n + 1, sizeof *pids);
    int *ranks = calloc(a->ranks.n + 1, sizeof *ranks);
    size_t n = 0;
    for (size_t i = 0; pids && ranks && i < a->ranks.n; i++) {
        if (a->ranks.at[i].fd < 0) continue;
        ranks[n] = a->ranks.at[i].rank;
        pids[n++] = a->ranks.at[i].pid;
    }
    a->stacks.pid = pids && ranks ? fork() : -1;
    if (a->stacks.pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        close(ends[0]);
        launcher_stacks_write(pids, ranks, n, limit_s, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    free(pids);
    free(ranks);
    a->stacks.fd = ends[0];
    if (a->stacks.pid < 0) a->stacks.pid = 1; /* without a child, an empty text is sent */
}

static void take_stacks(agent *a) {
    char piece[16384];
    const ssize_t n = read(a->stacks.fd, piece, sizeof piece);
    if (n > 0 && a->stacks.n + (size_t)n <= STACKS_BYTES) {
        char *more = realloc(a->stacks.text, a->stacks.n + (size_t)n);
        if (!more) return;
        memcpy(more + a->stacks.n, piece, (size_t)n);
        a->stacks.text = more;
        a->stacks.n += (size_t)n;
    }
    if (n > 0) return;
    send(a, json_pack("{s:s,s:o}", "kind", "stacks", "text",
                      launcher_message_words(a->stacks.n ? a->stacks.text : "", a->stacks.n)));
    close(a->stacks.fd);
    free(a->stacks.text);
    memset(&a->stacks, 0, sizeof a->stacks);
}

/* Ranks that read the board need no signal. With a patient request, the other ranks get no signal
 * either: ranks that begin to use the board later find the request there. */
static void answer_end_request(agent *a, const json_t *m) {
    launcher_board_request_end(&a->board, (ranks_end_request)launcher_message_number(m, "how", 0),
                               (uint32_t)launcher_message_number(m, "dropped", 0));
    if (json_is_true(json_object_get(m, "patient"))) return;
    a->ranks.signal_new = SIGTERM;
    launcher_ranks_signal(&a->ranks, SIGTERM, &a->board);
}

/* Kills all descendants of the agent except the launcher and the launcher's descendants. Killing
 * only children would not suffice: the children of a process that SIGKILL does not end never become
 * children of the agent. */
static void kill_orphans(const agent *a) {
    const pid_t but = a->child_ended ? 0 : a->child;
    launcher_processes_visit_below(getpid(), but, launcher_processes_kill, NULL);
}

/* Passes a signal on to each rank. Ranks that appear later get SIGTERM, too, but no other
 * signal. */
static void pass_signal(agent *a, int signal) {
    if (signal == SIGTERM) a->ranks.signal_new = signal;
    launcher_ranks_signal(&a->ranks, signal, NULL);
}

/* Wakes a child of the agent's child. MPICH's mpirun has such a process between itself and the
 * ranks. Does nothing for a rank. */
static void wake_daemon(void *ctx, const launcher_process *process) {
    const agent *a = ctx;
    for (size_t i = 0; i < a->ranks.n; i++)
        if (a->ranks.at[i].pid == process->pid) return;
    kill(process->pid, SIGCONT);
}

static void wake_child(agent *a) {
    if (a->child_ended) return;
    kill(a->child, SIGCONT);
    launcher_processes_visit(a->child, wake_daemon, a);
}

/* Carries out a message. Returns true if it requests the end. */
static bool answer(agent *a, const json_t *m) {
    if (launcher_message_is(m, "end")) return true;
    if (launcher_message_is(m, "found")) a->all_found = true;
    if (launcher_message_is(m, "signal"))
        pass_signal(a, (int)launcher_message_number(m, "signal", 0));
    if (launcher_message_is(m, "save"))
        launcher_board_request_save(&a->board, (uint64_t)launcher_message_number(m, "number", 0));
    if (launcher_message_is(m, "end_request")) answer_end_request(a, m);
    if (launcher_message_is(m, "stacks"))
        begin_stacks(a, (double)launcher_message_number(m, "limit", 1));
    if (launcher_message_is(m, "kill_ranks")) {
        a->is_failing = true;
        launcher_ranks_signal(&a->ranks, SIGKILL, NULL);
    }
    if (launcher_message_is(m, "kill_orphans")) kill_orphans(a);
    if (launcher_message_is(m, "kill_child") && !a->child_ended) kill(a->child, SIGKILL);
    if (launcher_message_is(m, "wake_child")) wake_child(a);
    return false;
}

static bool listen_to_run(agent *a) {
    const double now = program_now_s();
    launcher_channel_receive(a->channel);
    for (json_t *m; (m = launcher_channel_next(a->channel));) {
        a->received_at = now;
        const bool is_end = answer(a, m);
        json_decref(m);
        if (is_end) return true;
    }
    if (a->channel->fd < 0) return true;
    return a->work->lease_s > 0 && now - a->received_at > a->work->lease_s;
}

static void keep_lease(agent *a) {
    if (a->work->lease_s == 0 || program_now_s() - a->sent_at < LAUNCHER_BEAT_S) return;
    a->sent_at = program_now_s();
    send(a, json_pack("{s:s}", "kind", "beat"));
}

/* Wakes mpirun or orted with a signal that it handles. Otherwise it would sleep for a second
 * between the SIGTERM and the SIGKILL that it sends to a rank. */
static void hurry(void *ctx, const launcher_process *child) {
    const agent *a = ctx;
    if (child->pid == a->stacks.pid) return;
    const int fd = launcher_processes_open(child);
    if (fd < 0) return;
    pidfd_send_signal(fd, SIGCHLD, NULL, 0);
    close(fd);
}

static int look_ms(const agent *a) {
    if (a->is_failing) return HURRY_MS;
    if (!a->all_found && program_now_s() < a->find_until) return FIND_MS;
    return a->is_starting ? STARTING_MS : STEPPING_MS;
}

/* Once mpirun has ended, it starts no more ranks. On another host, ranks may appear after the child
 * has ended, because the first process of orted ends immediately. */
static bool may_start_ranks(const agent *a) { return !a->child_ended || a->work->lease_s > 0; }

/* Returns true if the launcher waits for this process, and nothing is left to watch. */
static bool is_over_by_itself(const agent *a) {
    return a->work->ends_with_child && a->child_ended && launcher_ranks_alive(&a->ranks) == 0 &&
           !has_children();
}

static void serve(agent *a) {
    for (bool is_over = false; !is_over;) {
        if (may_start_ranks(a) && (!a->all_found || !a->ranks.launched))
            launcher_ranks_find(&a->ranks, a->channel);
        const short room = launcher_channel_is_behind(a->channel) ? POLLOUT : 0;
        struct pollfd polled[] = {{.fd = a->channel->fd, .events = (short)(POLLIN | room)},
                                  {.fd = a->signals, .events = POLLIN},
                                  {.fd = a->ranks.ends_fd, .events = POLLIN},
                                  {.fd = a->stacks.pid ? a->stacks.fd : -1, .events = POLLIN}};
        if (poll(polled, 4, look_ms(a)) < 0) continue;
        launcher_ranks_handle_ends(&a->ranks, &a->board, a->channel);
        launcher_ranks_end_orphans(&a->ranks);
        if (a->stacks.pid && polled[3].revents) take_stacks(a);
        read_signals(a);
        reap_all(a);
        a->is_starting = launcher_ranks_report(&a->ranks, &a->board, a->channel);
        if (a->is_failing) launcher_processes_visit(getpid(), hurry, a);
        keep_lease(a);
        launcher_channel_flush(a->channel);
        is_over = listen_to_run(a) || is_over_by_itself(a);
    }
}

static void send_stuck(void *ctx, const launcher_process *process) {
    char *what = launcher_processes_describe(process->pid);
    if (what)
        send(ctx, json_pack("{s:s,s:o}", "kind", "stuck", "what",
                            launcher_message_words(what, strlen(what))));
    free(what);
}

/* Kills the job's processes, however long that takes: a process that SIGKILL does not end now may
 * end later. */
static void end_job(agent *a) {
    const double begin = program_now_s();
    struct pollfd child_ended = {.fd = a->signals, .events = POLLIN};
    bool has_reported = false;
    for (int ms = LEAST_KILL_MS;;) {
        read_signals(a);
        reap_all(a);
        if (!has_children()) return;
        launcher_processes_visit_below(getpid(), 0, launcher_processes_kill, NULL);
        if (!has_reported && program_now_s() - begin >= LAUNCHER_PATIENCE_S) {
            launcher_processes_visit_below(getpid(), 0, send_stuck, a);
            has_reported = true;
        }
        keep_lease(a);
        launcher_channel_receive(a->channel); /* notices whether dcp-run still exists */
        if (poll(&child_ended, 1, ms) == 0 && ms < MOST_KILL_MS) ms = ms < 500 ? 2 * ms : 500;
    }
}

/* Sends the last message, which reports that nothing of the job is left on this host. */
static void send_clear(agent *a) {
    json_t *told = json_array();
    for (int r = 0; r < RANKS_BOARD_RANKS; r++) {
        const uint32_t status = launcher_board_read(&a->board, r).told;
        if (status) json_array_append_new(told, json_integer(status));
    }
    char *reason = launcher_board_reason(&a->board);
    send(a, json_pack("{s:s,s:o,s:o}", "kind", "clear", "reason",
                      launcher_message_words(reason ? reason : "", reason ? strlen(reason) : 0),
                      "told", told));
    free(reason);
    launcher_channel_drain(a->channel, 1);
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Closes all descriptors except `kept`. If the agent held a pipe open, the pipe's reader would not
 * reach the end of the pipe even after dcp-run and the ranks have ended. */
static void close_all_but(int *kept, size_t n) {
    unsigned from = 0;
    qsort(kept, n, sizeof *kept, by_number);
    for (size_t i = 0; i < n; i++) {
        if (kept[i] < 0) continue;
        if ((unsigned)kept[i] > from) close_range(from, (unsigned)kept[i] - 1, 0);
        from = (unsigned)kept[i] + 1;
    }
    close_range(from, ~0u, 0);
}

void launcher_agent_open_streams(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

static void close_others(const agent *a) {
    int kept[] = {a->channel->fd,
                  a->signals,
                  a->ranks.ends_fd,
                  a->board.fd,
                  a->board.reason_fd,
                  a->work->lease_s > 0 ? STDERR_FILENO : -1, /* the launcher reads it */
                  a->work->folders->lock[0],
                  a->work->folders->lock[1]};
    close_all_but(kept, sizeof kept / sizeof *kept);
    launcher_agent_open_streams();
}

/* Changes the name of this process: a command that kills dcp-run by its name must not end the agent
 * as well. */
static void take_name(void) {
    static const char name[] = "job-guard";
    const size_t room = strlen(program_invocation_name);
    memset(program_invocation_name, 0, room);
    memcpy(program_invocation_name, name, room < sizeof name ? room : sizeof name - 1);
    prctl(PR_SET_NAME, name);
}

static void send_hello(agent *a, int code) {
    json_t *hello = a->work->hello ? json_deep_copy(a->work->hello) : json_object();
    json_object_set_new(hello, "kind", json_string("hello"));
    json_object_set_new(hello, "child", json_integer(a->child));
    json_object_set_new(hello, "errno", json_integer(code));
    send(a, hello);
}

_Noreturn void launcher_agent_run(const launcher_agent_work *work) {
    sigset_t all;
    agent a = {.work = work, .channel = work->channel, .received_at = program_now_s()};
    a.find_until = a.received_at + 600;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL); /* the program that is started gets its own mask */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGCONT); /* an agent that was stopped must wake when dcp-run ends */
    setsid();
    launcher_board_open(&a.board);
    a.signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    const pid_t self = getpid();
    const bool failed = launcher_ranks_open(&a.ranks, work->rank) != 0 || a.signals < 0;
    a.child = failed ? -1 : fork();
    if (a.child == 0) {
        launcher_board_set(&a.board, self);
        work->exec(work->ctx);
        _exit(127);
    }
    send_hello(&a, a.child < 0 ? errno : 0);
    if (a.child < 0) _exit(1);
    take_name();
    close_others(&a);
    (void)!chdir("/");
    serve(&a);
    end_job(&a);
    send_clear(&a);
    launcher_folders_remove(work->folders);
    _exit(0);
}
