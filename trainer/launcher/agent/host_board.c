#include "launcher/agent/host_board.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

launcher_seen launcher_board_look(const launcher_board *board, int rank) {
    if (!board->shared || rank < 0 || rank >= RANKS_BOARD_RANKS) return (launcher_seen){0};
    ranks_board_entry *e = &board->shared->entries[rank];
    return (launcher_seen){.progress = atomic_load(&e->progress),
                           .step = atomic_load(&e->step),
                           .micro_batch = atomic_load(&e->micro_batch),
                           .published = atomic_load(&e->published),
                           .saves_done = atomic_load(&e->saves_done),
                           .slowest_ns = atomic_load(&e->slowest_ns),
                           .phase = atomic_load(&e->phase),
                           .told = atomic_load(&e->told)};
}

json_t *launcher_board_pack(int rank, const launcher_seen *s) {
    return json_pack("[i,I,I,I,I,I,I,i,i]", rank, (json_int_t)s->progress, (json_int_t)s->step,
                     (json_int_t)s->micro_batch, (json_int_t)s->published,
                     (json_int_t)s->saves_done, (json_int_t)s->slowest_ns, (int)s->phase,
                     (int)s->told);
}

int launcher_board_unpack(const json_t *packed, int *rank, launcher_seen *s) {
    json_int_t n[6];
    int phase, told;
    if (json_unpack((json_t *)packed, "[i,I,I,I,I,I,I,i,i]", rank, &n[0], &n[1], &n[2], &n[3],
                    &n[4], &n[5], &phase, &told) != 0)
        return -1;
    *s = (launcher_seen){.progress = (uint64_t)n[0],
                         .step = (uint64_t)n[1],
                         .micro_batch = (uint64_t)n[2],
                         .published = (uint64_t)n[3],
                         .saves_done = (uint64_t)n[4],
                         .slowest_ns = (uint64_t)n[5],
                         .phase = (uint32_t)phase,
                         .told = (uint32_t)told};
    return 0;
}

char *launcher_board_resumed(const launcher_board *board) {
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

void launcher_board_ask_to_save(launcher_board *board, uint64_t number) {
    if (board->shared) atomic_store(&board->shared->saves_asked, number);
}

void launcher_board_ask_to_end(launcher_board *board, ranks_end_request how) {
    if (board->shared && atomic_load(&board->shared->end_asked) < (uint32_t)how)
        atomic_store(&board->shared->end_asked, (uint32_t)how);
}
