#include "launcher/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent.h"
#include "launcher/agent/processes.h"
#include "programs/program.h"

void launcher_link_open(launcher_link *link, int fd, bool is_remote) {
    const double now = program_now_s();
    *link = (launcher_link){.is_remote = is_remote, .received_at = now, .sent_at = now};
    launcher_channel_open(&link->channel, fd);
}

void launcher_link_close(launcher_link *link) { launcher_channel_close(&link->channel); }

void launcher_link_send(launcher_link *link, json_t *message) {
    link->sent_at = program_now_s();
    launcher_channel_send(&link->channel, message);
}

/* Sends heartbeats only while messages arrive from the agent: a heartbeat to a silent host would
 * extend the lease of the ranks there. */
void launcher_link_maintain(launcher_link *link) {
    launcher_channel_flush(&link->channel);
    if (!link->is_remote || link->state != LAUNCHER_LINK_UP || link->received_at < link->sent_at)
        return;
    if (program_now_s() - link->sent_at < LAUNCHER_BEAT_S) return;
    launcher_link_send(link, json_pack("{s:s}", "kind", "beat"));
}

json_t *launcher_link_next(launcher_link *link) {
    launcher_channel_receive(&link->channel);
    json_t *message = launcher_channel_next(&link->channel);
    if (message) {
        link->received_at = program_now_s();
        return message;
    }
    const bool is_silent =
        link->is_remote && program_now_s() - link->received_at > LAUNCHER_LEASE_S;
    if (link->channel.fd >= 0 && !is_silent) return NULL;
    if (link->state != LAUNCHER_LINK_CLEAR) link->state = LAUNCHER_LINK_LOST;
    launcher_channel_close(&link->channel);
    return NULL;
}

double launcher_link_safe_at(const launcher_link *link) {
    if (link->state != LAUNCHER_LINK_LOST || !link->is_remote) return 0;
    return link->sent_at + LAUNCHER_LEASE_S + 1; /* 1 s for the agent to kill the processes */
}

enum { BACKLOG = 512 };

/* Opens a port for IPv6 and IPv4 (AF_INET6), or for IPv4 alone. */
static int open_socket(int family) {
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int off = 0;
    const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    const struct sockaddr_in any4 = {.sin_family = AF_INET};
    if (fd < 0) return -1;
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const int failed = family == AF_INET6 ? bind(fd, (const void *)&any6, sizeof any6)
                                          : bind(fd, (const void *)&any4, sizeof any4);
    if (!failed && listen(fd, BACKLOG) == 0) return fd;
    close(fd);
    return -1;
}

static int port_of(int fd) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    if (getsockname(fd, (void *)&name, &size) != 0) return 0;
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

/* Returns true for an address that other hosts can use without naming an interface. */
static bool is_for_others(const struct ifaddrs *at) {
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK)) return false;
    if (at->ifa_addr->sa_family == AF_INET) return true;
    if (at->ifa_addr->sa_family != AF_INET6) return false;
    return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)at->ifa_addr)->sin6_addr);
}

static void list_addresses(char *out, size_t size) {
    struct ifaddrs *all = NULL;
    size_t n = 0;
    *out = '\0';
    if (getifaddrs(&all) != 0) all = NULL;
    for (int family = 0; family < 2; family++) { /* IPv4 first */
        for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
            char text[INET6_ADDRSTRLEN];
            if (!is_for_others(at) || (at->ifa_addr->sa_family == AF_INET6) != family) continue;
            const void *address = family ? (void *)&((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr
                                         : (void *)&((struct sockaddr_in *)at->ifa_addr)->sin_addr;
            if (!inet_ntop(at->ifa_addr->sa_family, address, text, sizeof text)) continue;
            if (n + strlen(text) + 2 > size) continue;
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "", text);
        }
    }
    if (all) freeifaddrs(all);
    if (n == 0) snprintf(out, size, "127.0.0.1");
}

static int make_key(char *key, size_t size) {
    uint64_t number[2];
    if (getrandom(number, sizeof number, 0) != sizeof number) return -1;
    snprintf(key, size, "%016" PRIx64 "%016" PRIx64, number[0], number[1]);
    return 0;
}

int launcher_listener_open(launcher_listener *listener) {
    *listener = (launcher_listener){.fd = open_socket(AF_INET6)};
    if (listener->fd < 0) listener->fd = open_socket(AF_INET);
    if (listener->fd < 0 || make_key(listener->key, sizeof listener->key) != 0) {
        fprintf(stderr, "dcp-run: cannot listen for agents of other hosts: %s\n", strerror(errno));
        launcher_listener_close(listener);
        return -1;
    }
    listener->port = port_of(listener->fd);
    list_addresses(listener->addresses, sizeof listener->addresses);
    return 0;
}

void launcher_listener_close(launcher_listener *listener) {
    if (listener->fd >= 0) close(listener->fd);
    listener->fd = -1;
}

int launcher_listener_accept(const launcher_listener *listener) {
    if (listener->fd < 0) return -1;
    const int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

enum { POLL_MS = 5, LOOK_MS = 100 };

void launcher_guard_name(launcher_guard *guard) {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)getpid() << 32 | (uint64_t)(program_now_s() * 1e3);
    snprintf(guard->mark, sizeof guard->mark, "%016llx", (unsigned long long)number);
}

int launcher_guard_start(launcher_guard *guard, launcher_channel *channel,
                         const launcher_folders *folders, const char *rank, void (*exec)(void *ctx),
                         void *ctx) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
    /* if the agent is killed, the job's processes become children of dcp-run */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    guard->pid = fork();
    if (guard->pid == 0) {
        close(pair[0]);
        launcher_channel up;
        launcher_channel_open(&up, pair[1]);
        launcher_agent_run(&(launcher_agent_work){
            .channel = &up, .folders = folders, .rank = rank, .exec = exec, .ctx = ctx});
    }
    const int code = errno;
    close(pair[1]);
    launcher_channel_open(channel, pair[0]);
    if (guard->pid > 0) return 0;
    launcher_channel_close(channel);
    errno = code;
    return -1;
}

void launcher_guard_wake(const launcher_guard *guard) { kill(guard->pid, SIGCONT); }

/* The context of kill_marked, which visits the children of this process. It kills only children
 * with the job's mark, and their descendants. Other children, which existed before this process
 * became dcp-run, are left alone. */
typedef struct marked_job {
    const char *mark;
    int left;
    bool tell;
} marked_job;

static void report_alive(void *ctx, const launcher_process *process) {
    (void)ctx;
    char *what = launcher_processes_describe(process->pid);
    if (what) fprintf(stderr, "dcp-run: process %s: SIGKILL does not end it\n", what);
    free(what);
}

static void kill_marked(void *ctx, const launcher_process *child) {
    marked_job *job = ctx;
    char *marks = launcher_processes_variable(child->pid, "DCP_RUN_JOB");
    const bool is_marked = marks && strstr(marks, job->mark);
    /* an ending process does not show its mark any more */
    const bool is_left = is_marked || (!marks && launcher_processes_is_ending(child->pid));
    free(marks);
    job->left += is_left;
    if (is_marked) {
        launcher_processes_visit_below(child->pid, 0, launcher_processes_kill, NULL);
        launcher_processes_kill(NULL, child);
    }
    if (!is_left || !job->tell) return;
    report_alive(NULL, child);
    launcher_processes_visit_below(child->pid, 0, report_alive, NULL);
}

/* Kills the job's processes after the agent was killed and they became children of dcp-run. */
static int kill_adopted(const launcher_guard *guard, double end) {
    const double tell_at = program_now_s() + LAUNCHER_PATIENCE_S;
    bool told = false;
    /* until two searches in a row find nothing: children of an ending process may become children
     * of dcp-run after the first search */
    for (int clean = 0; clean < 2;) {
        marked_job job = {.mark = guard->mark, .tell = !told && program_now_s() >= tell_at};
        told |= job.tell;
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        launcher_processes_visit(getpid(), kill_marked, &job);
        clean = job.left ? 0 : clean + 1;
        if (job.left && told && program_now_s() >= end) return -1;
        if (job.left) poll(NULL, 0, POLL_MS);
    }
    return 0;
}

int launcher_guard_clear(launcher_guard *guard, double end) {
    int status = 0;
    bool gone;
    struct pollfd ended = {.fd = pidfd_open(guard->pid, 0), .events = POLLIN};
    while (!(gone = waitpid(guard->pid, &status, WNOHANG) != 0) && program_now_s() < end) {
        launcher_guard_wake(guard);
        poll(&ended, 1, LOOK_MS);
    }
    if (ended.fd >= 0) close(ended.fd);
    if (gone && WIFSIGNALED(status)) return kill_adopted(guard, end);
    return gone ? 0 : -1;
}
