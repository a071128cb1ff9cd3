#include "launcher/agent/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "launcher/agent/processes.h"

enum { REASON_BYTES = 1280 };

static int make_file(void) { return memfd_create("dcp-run", MFD_CLOEXEC); }

void launcher_board_open(launcher_board *board) {
    *board = (launcher_board){.fd = make_file(), .reason_fd = make_file()};
    if (board->fd < 0 || ftruncate(board->fd, sizeof *board->shared) != 0) return;
    void *memory =
        mmap(NULL, sizeof *board->shared, PROT_READ | PROT_WRITE, MAP_SHARED, board->fd, 0);
    if (memory == MAP_FAILED) return;
    board->shared = memory;
    board->shared->bytes = sizeof *board->shared;
    board->shared->magic = RANKS_BOARD_MAGIC;
}

static void set_variable(const char *name, int agent, int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", agent, fd);
    if (fd >= 0)
        setenv(name, path, 1);
    else
        unsetenv(name);
}

void launcher_board_set(const launcher_board *board, int agent) {
    set_variable("DCP_RUN_BOARD", agent, board->shared ? board->fd : -1);
    set_variable("DCP_RUN_REASON", agent, board->reason_fd);
}

launcher_rank_report launcher_board_read(const launcher_board *board, int rank) {
    if (!board->shared || rank < 0 || rank >= RANKS_BOARD_RANKS) return (launcher_rank_report){0};
    ranks_board_entry *e = &board->shared->entries[rank];
    return (launcher_rank_report){.progress = atomic_load(&e->progress),
                                  .step = atomic_load(&e->step),
                                  .micro_batch = atomic_load(&e->micro_batch),
                                  .published = atomic_load(&e->published),
                                  .saves_done = atomic_load(&e->saves_done),
                                  .slowest_ns = atomic_load(&e->slowest_ns),
                                  .handed_over = atomic_load(&e->handed_over),
                                  .phase = atomic_load(&e->phase),
                                  .told = atomic_load(&e->told)};
}

/* Writes an entry as a part of the message `board`. */
static json_t *launcher_board_pack(int rank, const launcher_rank_report *s) {
    return json_pack("[i,I,I,I,I,I,I,I,i,i]", rank, (json_int_t)s->progress, (json_int_t)s->step,
                     (json_int_t)s->micro_batch, (json_int_t)s->published,
                     (json_int_t)s->saves_done, (json_int_t)s->slowest_ns,
                     (json_int_t)s->handed_over, (int)s->phase, (int)s->told);
}

int launcher_board_unpack(const json_t *packed, int *rank, launcher_rank_report *s) {
    json_int_t n[7];
    int phase, told;
    if (json_unpack((json_t *)packed, "[i,I,I,I,I,I,I,I,i,i]", rank, &n[0], &n[1], &n[2], &n[3],
                    &n[4], &n[5], &n[6], &phase, &told) != 0)
        return -1;
    *s = (launcher_rank_report){.progress = (uint64_t)n[0],
                                .step = (uint64_t)n[1],
                                .micro_batch = (uint64_t)n[2],
                                .published = (uint64_t)n[3],
                                .saves_done = (uint64_t)n[4],
                                .slowest_ns = (uint64_t)n[5],
                                .handed_over = (uint64_t)n[6],
                                .phase = (uint32_t)phase,
                                .told = (uint32_t)told};
    return 0;
}

/* Returns where the run resumed, as reported by rank 0; NULL: not reported (yet). The caller frees
 * it. */
static char *launcher_board_resumed(const launcher_board *board) {
    if (!board->shared || !atomic_load(&board->shared->resumed_is_set)) return NULL;
    return strndup(board->shared->resumed, RANKS_BOARD_TEXT);
}

char *launcher_board_reason(const launcher_board *board) {
    char text[REASON_BYTES];
    const ssize_t n = board->reason_fd < 0 ? 0 : pread(board->reason_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return strdup(text);
}

void launcher_board_request_save(launcher_board *board, uint64_t number) {
    if (board->shared) atomic_store(&board->shared->saves_requested, number);
}

void launcher_board_request_end(launcher_board *board, ranks_end_request how, uint32_t dropped) {
    if (!board->shared) return;
    if (atomic_load(&board->shared->hosts_dropped) < dropped)
        atomic_store(&board->shared->hosts_dropped, dropped);
    if (atomic_load(&board->shared->end_requested) < (uint32_t)how)
        atomic_store(&board->shared->end_requested, (uint32_t)how);
}

enum { LEVELS = 3 }; /* mpirun, the process that MPICH's mpirun starts, the ranks */

typedef struct rank_finder {
    launcher_local_ranks *ranks;
    launcher_channel *channel;
} rank_finder;

int launcher_ranks_open(launcher_local_ranks *ranks, const char *variable) {
    *ranks = (launcher_local_ranks){.variable = variable, .ends_fd = epoll_create1(EPOLL_CLOEXEC)};
    return ranks->ends_fd < 0 ? -1 : 0;
}

/* Returns the rank that `pid` was started as; -1 if it is not a rank (yet). */
static int mpi_rank_of(const launcher_local_ranks *ranks, pid_t pid) {
    char *value = launcher_processes_variable(pid, ranks->variable);
    const int rank = value ? atoi(value) : -1;
    free(value);
    return rank < RANKS_BOARD_RANKS ? rank : -1;
}

static bool is_known(const launcher_local_ranks *ranks, int rank) {
    for (size_t i = 0; i < ranks->n; i++)
        if (ranks->at[i].rank == rank) return true;
    return false;
}

static void take_rank(const rank_finder *finder, int rank, const launcher_process *process) {
    launcher_local_ranks *ranks = finder->ranks;
    if (is_known(ranks, rank)) return;
    launcher_local_rank *more = realloc(ranks->at, (ranks->n + 1) * sizeof *more);
    if (!more) return;
    ranks->at = more;
    const int fd = launcher_processes_open(process);
    if (fd < 0) return;
    struct epoll_event end = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = ranks->n};
    epoll_ctl(ranks->ends_fd, EPOLL_CTL_ADD, fd, &end);
    ranks->at[ranks->n++] = (launcher_local_rank){.rank = rank, .pid = process->pid, .fd = fd};
    ranks->launched = true;
    launcher_channel_send(finder->channel,
                          json_pack("{s:s,s:i,s:i,s:I}", "kind", "rank", "rank", rank, "pid",
                                    (int)process->pid, "start", (json_int_t)process->start));
    if (ranks->signal_new) pidfd_send_signal(fd, ranks->signal_new, NULL, 0);
}

/* Ranks are children of mpirun, or of what mpirun has started for this host. Processes that ranks
 * start inherit the variable with the rank's number, so the search does not go below a rank. If a
 * process that has the variable is the agent's own child, a rank left it behind, and the agent
 * adopted it. */
static int take_process(void *ctx, const launcher_process *process) {
    const rank_finder *finder = ctx;
    const int rank = mpi_rank_of(finder->ranks, process->pid);
    if (rank < 0) return 1;
    if (process->parent == getpid())
        finder->ranks->launched = true;
    else
        take_rank(finder, rank, process);
    return 0;
}

void launcher_ranks_find(launcher_local_ranks *ranks, launcher_channel *channel) {
    rank_finder finder = {ranks, channel};
    const bool launched = ranks->launched;
    launcher_processes_descend(getpid(), LEVELS, take_process, &finder);
    if (!launched && ranks->launched)
        launcher_channel_send(channel, json_pack("{s:s}", "kind", "launched"));
}

int launcher_ranks_alive(const launcher_local_ranks *ranks) {
    int n = 0;
    for (size_t i = 0; i < ranks->n; i++) n += ranks->at[i].fd >= 0;
    return n;
}

void launcher_ranks_end_orphans(const launcher_local_ranks *ranks) {
    for (size_t i = 0; i < ranks->n; i++) {
        const launcher_local_rank *rank = &ranks->at[i];
        if (rank->fd >= 0 && launcher_processes_parent(rank->pid) == getpid())
            pidfd_send_signal(rank->fd, SIGKILL, NULL, 0);
    }
}

static void take_end(launcher_local_rank *rank, const launcher_board *board,
                     launcher_channel *channel) {
    close(rank->fd);
    rank->fd = -1;
    launcher_channel_send(channel,
                          json_pack("{s:s,s:i,s:i}", "kind", "gone", "rank", rank->rank, "told",
                                    (int)launcher_board_read(board, rank->rank).told));
}

void launcher_ranks_handle_ends(launcher_local_ranks *ranks, const launcher_board *board,
                                launcher_channel *channel) {
    struct epoll_event ended[64];
    const int n = epoll_wait(ranks->ends_fd, ended, 64, 0);
    if (n > 0) launcher_ranks_report(ranks, board, channel);
    for (int i = 0; i < n; i++) take_end(&ranks->at[ended[i].data.u64], board, channel);
}

bool launcher_ranks_report(launcher_local_ranks *ranks, const launcher_board *board,
                           launcher_channel *channel) {
    json_t *news = NULL;
    bool is_starting = false;
    for (size_t i = 0; i < ranks->n; i++) {
        launcher_local_rank *rank = &ranks->at[i];
        const launcher_rank_report seen = launcher_board_read(board, rank->rank);
        is_starting |= seen.told == 1 && seen.phase < RANKS_PHASE_STEPPED;
        if (memcmp(&seen, &rank->told, sizeof seen) == 0) continue;
        rank->told = seen;
        if (!news) news = json_array();
        json_array_append_new(news, launcher_board_pack(rank->rank, &seen));
    }
    if (!news) return is_starting;
    char *resumed = launcher_board_resumed(board);
    launcher_channel_send(
        channel,
        json_pack("{s:s,s:o,s:o}", "kind", "board", "ranks", news, "resumed",
                  launcher_message_words(resumed ? resumed : "", resumed ? strlen(resumed) : 0)));
    free(resumed);
    return is_starting;
}

void launcher_ranks_signal(const launcher_local_ranks *ranks, int signal,
                           const launcher_board *board) {
    for (size_t i = 0; i < ranks->n; i++) {
        const launcher_local_rank *rank = &ranks->at[i];
        if (rank->fd < 0 || (board && launcher_board_read(board, rank->rank).told)) continue;
        /* a request to save must not end a rank that is not prepared for it yet */
        if (signal == SIGUSR1 && !launcher_processes_handles_signal(rank->pid, signal)) continue;
        pidfd_send_signal(rank->fd, signal, NULL, 0);
    }
}
