/* A rank for the tests of dcp-run: an MPI program that does what files in the folder DIR say. All
 * ranks meet in a collective every few milliseconds, like training ranks, so the others wait for a
 * dead one.
 *
 *   dcp_run_rank DIR            ends with the status in DIR/exit, as soon as that exists
 *   dcp_run_rank DIR steps K    every start publishes one more DIR/ckpt/step-*, prints
 *                               DCP_RUN_RESTART and exits 3; if step K exists: exits 0
 *   dcp_run_rank DIR stubborn   ignores SIGTERM
 *   dcp_run_rank DIR tells S    without MPI: reports status S to dcp-run, and ends with it
 *   dcp_run_rank DIR dies S     without MPI: announces its status, and ends before reporting it
 *
 * SIGTERM: all ranks agree, and exit 143. SIGUSR1: creates DIR/usr1.RANK. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ranks/launcher.h"

enum { NOT_YET = -1, EXIT_STOPPED = 143, PACE_US = 2000 };

static volatile sig_atomic_t terminated, usr1;

static void on_term(int signal) {
    (void)signal;
    terminated = 1;
}

static void on_usr1(int signal) {
    (void)signal;
    usr1 = 1;
}

/* The number in the file; NOT_YET if there is none. */
static int read_number(const char *dir, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    int value = NOT_YET;
    if (file && fscanf(file, "%d", &value) != 1) value = NOT_YET;
    if (file) fclose(file);
    return value;
}

static void touch(const char *dir, const char *name, int number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, number);
    FILE *file = fopen(path, "w");
    if (file) fclose(file);
}

/* Runs until a file or SIGTERM says how to end; returns the status. */
static int follow(const char *dir, int rank) {
    for (;;) {
        /* [0] rank 0's command + 1, [1] whether any rank was terminated */
        int say[2] = {rank == 0 ? read_number(dir, "exit") + 1 : 0, terminated}, all[2];
        MPI_Allreduce(say, all, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (all[1]) return EXIT_STOPPED;
        if (all[0] > 0) return all[0] - 1;
        if (usr1) touch(dir, "usr1", rank);
        usleep(PACE_US);
    }
}

static int publish_one(const char *dir, int last, int rank) {
    int step = 1;
    char path[4096];
    for (struct stat st;; step++) {
        snprintf(path, sizeof path, "%s/ckpt/step-%08d", dir, step);
        if (stat(path, &st) != 0) break;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const char *restart = getenv("DCP_RUN_RESTART");
    if (rank == 0) puts(restart ? restart : "unset");
    if (rank == 0 && mkdir(path, 0777) != 0) return 2;
    return step >= last ? 0 : 3;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    const char *dir = argv[1], *mode = argc > 2 ? argv[2] : "";
    if (argc > 3 && (strcmp(mode, "tells") == 0 || strcmp(mode, "dies") == 0)) {
        ranks_launcher_begin();
        if (strcmp(mode, "tells") == 0) ranks_launcher_end(atoi(argv[3]));
        return atoi(argv[3]);
    }
    signal(SIGTERM, strcmp(mode, "stubborn") == 0 ? SIG_IGN : on_term);
    signal(SIGUSR1, on_usr1);
    MPI_Init(&argc, &argv);
    int rank, status;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    touch(dir, "up", (int)getpid());
    if (strcmp(mode, "steps") == 0 && argc > 3)
        status = publish_one(dir, atoi(argv[3]), rank);
    else
        status = follow(dir, rank);
    MPI_Finalize();
    return status;
}
