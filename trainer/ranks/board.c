/* The board is mapped once, and remains mapped until the process ends. A rank whose number is
 * RANKS_BOARD_RANKS or more has no entry, and so does not use the board. */
#include "ranks/board.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static ranks_board *board;
static ranks_board_entry *own; /* NULL if there is no board */

int ranks_board_open_file(const char *variable, int flags) {
    const char *path = getenv(variable);
    static const char dcp_run[] = "/memfd:dcp-run";
    char target[64] = "";
    struct stat st;
    if (!path || readlink(path, target, sizeof target - 1) < 0) return -1;
    if (strncmp(target, dcp_run, sizeof dcp_run - 1) != 0) return -1;
    const int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0) return fd;
    close(fd);
    return -1;
}

static ranks_board *map_board(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size != sizeof(ranks_board)) return NULL;
    ranks_board *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found == MAP_FAILED) return NULL;
    if (found->magic == RANKS_BOARD_MAGIC && found->bytes == sizeof *found) return found;
    munmap(found, sizeof *found);
    return NULL;
}

void ranks_board_open(int rank) {
    if (own || rank < 0 || rank >= RANKS_BOARD_RANKS) return;
    const int fd = ranks_board_open_file("DCP_RUN_BOARD", O_RDWR);
    if (fd < 0) return;
    board = map_board(fd);
    close(fd);
    if (!board) return;
    own = &board->entries[rank];
    atomic_store(&own->told, 1);
}

void ranks_board_end(int status) {
    if (own) atomic_store(&own->told, 2 + (uint32_t)status);
}

void ranks_board_reach(ranks_phase phase) {
    struct timespec now;
    if (!own) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t at = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    atomic_store(&own->at_ns[phase], at);
    for (int p = (int)phase - 1; p > RANKS_PHASE_NONE && !atomic_load(&own->at_ns[p]); p--)
        atomic_store(&own->at_ns[p], at);
    if (atomic_load(&own->phase) < phase) atomic_store(&own->phase, phase);
}

void ranks_board_beat(void) {
    if (own) atomic_fetch_add(&own->progress, 1);
}

void ranks_board_on_progress(void *ctx, uint64_t done, uint64_t total) {
    (void)ctx, (void)done, (void)total;
    ranks_board_beat();
}

void ranks_board_micro_batch(uint64_t number) {
    if (own) atomic_store(&own->micro_batch, number);
    ranks_board_beat();
}

void ranks_board_step(uint64_t step, double seconds) {
    if (!own) return;
    const uint64_t ns = (uint64_t)(seconds * 1e9);
    atomic_store(&own->step, step);
    atomic_store(&own->micro_batch, 0);
    if (ns > atomic_load(&own->slowest_ns)) atomic_store(&own->slowest_ns, ns);
    ranks_board_beat();
}

void ranks_board_publish(uint64_t step) {
    if (own && atomic_load(&own->published) < step + 1) atomic_store(&own->published, step + 1);
}

void ranks_board_hand_over(uint64_t step) {
    if (own) atomic_store(&own->handed_over, step + 1);
}

void ranks_board_resumed(const char *text) {
    if (!own || own != board->entries || atomic_load(&board->resumed_is_set)) return;
    snprintf(board->resumed, sizeof board->resumed, "%s", text);
    atomic_store(&board->resumed_is_set, 1);
}

uint64_t ranks_board_saves_requested(void) {
    return own ? atomic_load(&board->saves_requested) : 0;
}

void ranks_board_saves_answered(uint64_t asked) {
    if (own) atomic_store(&own->saves_done, asked);
}

ranks_end_request ranks_board_end_requested(void) {
    return own ? (ranks_end_request)atomic_load(&board->end_requested) : RANKS_END_NONE;
}

uint32_t ranks_board_hosts_dropped(void) { return own ? atomic_load(&board->hosts_dropped) : 0; }
