#include "launcher/rank_program.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/agent/remote.h"
#include "programs/program.h"

#define SLOTS "DCP_RUN_SLOTS" /* the number of ranks per host, in the order of ranks: "2,2,1" */

enum { EXIT_CANNOT_EXEC = 127 };

void launcher_set_number(const char *name, long value) {
    char text[24];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

/* Returns a port that is not in use now; 0: none found. */
static int find_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t length = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool failed = fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
                        getsockname(fd, (struct sockaddr *)&at, &length) != 0;
    if (fd >= 0) close(fd);
    return failed ? 0 : ntohs(at.sin_port);
}

static const char *find_first_host(const launcher_placement *placement) {
    for (size_t i = 0; i < placement->n; i++)
        if (placement->at[i].slots > 0) return placement->at[i].name;
    return "127.0.0.1";
}

static void set_slots(const launcher_placement *placement) {
    char *slots = NULL;
    size_t bytes;
    FILE *text = open_memstream(&slots, &bytes);
    if (!text) return;
    for (size_t i = 0; i < placement->n; i++)
        if (placement->at[i].slots > 0) fprintf(text, "%d,", placement->at[i].slots);
    if (placement->n == 0) fprintf(text, "%d", placement->ranks);
    if (fclose(text) == 0) setenv(SLOTS, slots, 1);
    free(slots);
}

/* Sets a variable unless the user has set it. The variable `own` records the value that this
 * function set, so the next start can replace it. */
static void set_unless_given(const char *name, const char *own, const char *value) {
    const char *there = getenv(name), *ours = getenv(own);
    if (there && !(ours && strcmp(there, ours) == 0)) return;
    setenv(name, value, 1);
    setenv(own, value, 1);
}

void launcher_rank_set_environment(const launcher_placement *placement) {
    char port[16];
    snprintf(port, sizeof port, "%d", find_port());
    set_unless_given("MASTER_ADDR", "DCP_RUN_MASTER_ADDR", find_first_host(placement));
    set_unless_given("MASTER_PORT", "DCP_RUN_MASTER_PORT", port);
    set_slots(placement);
}

static long read_variable(const char *name) {
    const char *text = name ? getenv(name) : NULL;
    return text ? atol(text) : 0;
}

/* Returns the variables by which mpirun identifies the rank. */
static const program_launcher *find_mpirun(void) {
    const program_launcher *open_mpi = &program_launchers[PROGRAM_BY_OPEN_MPI];
    return getenv(open_mpi->rank) ? open_mpi : &program_launchers[PROGRAM_BY_PMI];
}

/* Unblocks the signals that launcher_mpirun_exec has blocked for mpirun, because MPICH's ranks
 * inherit mpirun's mask. */
static void unblock_signals(void) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGPIPE);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

/* Sets the number of the rank's host, GROUP_RANK, which follows from the rank because mpirun fills
 * the hosts in their order. */
static void set_group(long rank) {
    const char *at = getenv(SLOTS);
    long first = 0, own = 0, groups = 0;
    while (at && *at) {
        char *end;
        first += strtol(at, &end, 10);
        if (rank >= first) own++;
        groups++;
        at = *end ? end + 1 : end;
    }
    launcher_set_number("GROUP_RANK", own);
    launcher_set_number("GROUP_WORLD_SIZE", groups ? groups : 1);
}

static void set_threads(long ranks_here) {
    const int n = program_cores();
    if (getenv("OMP_NUM_THREADS")) return;
    launcher_set_number("OMP_NUM_THREADS", ranks_here > 0 && n > ranks_here ? n / ranks_here : 1);
}

int launcher_rank_main(int argc, char **argv) {
    const program_launcher *by = find_mpirun();
    const long rank = read_variable(by->rank), world = read_variable(by->size);
    const long ranks_here = read_variable(by->local_size);
    if (argc < 3 || world < 1)
        return program_fail(PROGRAM_USAGE,
                            "'rank' is only for dcp-run itself, which uses it with mpirun");
    launcher_set_number("RANK", rank);
    launcher_set_number("WORLD_SIZE", world);
    launcher_set_number("LOCAL_RANK", read_variable(by->local_rank));
    launcher_set_number("LOCAL_WORLD_SIZE", ranks_here);
    launcher_set_number("ROLE_RANK", rank);
    launcher_set_number("ROLE_WORLD_SIZE", world);
    setenv("ROLE_NAME", "default", 1);
    set_group(rank);
    setenv("TORCHELASTIC_RUN_ID", getenv("DCP_RUN_NAME") ? getenv("DCP_RUN_NAME") : "none", 1);
    /* rank 0, not an agent, serves torch.distributed's key-value store */
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", 0);
    set_threads(ranks_here);
    unblock_signals();
    unsetenv(LAUNCHER_KEY);
    execvp(argv[2], argv + 2);
    program_note("cannot run %s: %s", argv[2], strerror(errno));
    return EXIT_CANNOT_EXEC;
}
