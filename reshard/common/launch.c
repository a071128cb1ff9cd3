#include "common/launch.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dcp/mpi.h>

#include "programs/program.h"

void progress_bar_start(progress_bar *bar, const char *what) {
    double now = program_now_s();
    *bar = (progress_bar){.what = what,
                          .start_s = now,
                          .last_s = now,
                          .on = isatty(STDERR_FILENO) && program_rank() == 0};
}

void progress_bar_update(progress_bar *bar, uint64_t done, uint64_t total) {
    enum { WIDTH = 40 };
    char speed[32];
    if (!bar->on) return;
    double now = program_now_s(), elapsed = now - bar->start_s;
    if (elapsed < 2 || now - bar->last_s < 0.2) return;
    double part = total ? (double)done / (double)total : 1;
    int full = (int)(part * WIDTH);
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f%%  %s/s ", bar->what, full,
            "########################################", WIDTH - full, "", part * 100,
            program_bytes_text((uint64_t)((double)done / elapsed), speed));
    fflush(stderr);
    bar->last_s = now;
    bar->shown = true;
}

void progress_bar_end(progress_bar *bar) {
    if (bar->shown) fputs("\r\033[K", stderr);
    bar->on = bar->shown = false;
}

/* MPI is initialized only if a launcher's environment variables are set, because MPI_Init takes a
 * quarter of a second, and fails on login nodes. */

static volatile sig_atomic_t caught; /* the signal that a handler received */

static void catch_signal(int number) { caught = number; }

void launch_catch_signals(void) {
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int launch_is_stopped(void *ctx) {
    (void)ctx;
    return caught != 0;
}

int launch_check_stopped(void) {
    if (!caught) return 0;
    return program_fail(PROGRAM_FAILED, "stopped by a signal: nothing is left behind");
}

int launch_exit_status(int exit_status) {
    return exit_status == PROGRAM_FAILED && caught == SIGTERM ? PROGRAM_STOPPED : exit_status;
}

int launch_start(launch *job) {
    dcp_error err = {0};
    *job = (launch){.size = 1};
    if (!program_is_launched()) return dcp_comm_self(&job->comm, &err) ? program_report(&err) : 0;
    int level; /* a background save has a thread of its own */
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return program_fail(PROGRAM_FAILED, "MPI_Init failed: start the program alone, or with the "
                                            "mpirun of the MPI that it was built with");
    job->mpi = true;
    if (dcp_comm_from_mpi(MPI_COMM_WORLD, &job->comm, &err)) return program_report(&err);
    job->rank = dcp_comm_rank(job->comm);
    job->size = dcp_comm_size(job->comm);
    return 0;
}

void launch_end(launch *job) {
    dcp_comm_destroy(job->comm);
    if (job->mpi) MPI_Finalize();
}

int launch_worst(const launch *job, int exit_status) {
    if (job->mpi) MPI_Allreduce(MPI_IN_PLACE, &exit_status, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return exit_status;
}

void launch_broadcast(const launch *job, void *buf, int bytes) {
    if (job->mpi) MPI_Bcast(buf, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

void launch_collect(const launch *job, void *buf, uint64_t bytes) {
    enum { PART = 1 << 26 };
    char *at = buf;
    for (uint64_t n; job->mpi && bytes; bytes -= n, at += n) {
        n = bytes < PART ? bytes : PART;
        MPI_Reduce(job->rank ? at : MPI_IN_PLACE, at, (int)n, MPI_BYTE, MPI_BOR, 0, MPI_COMM_WORLD);
    }
}

void launch_sum(const launch *job, uint64_t *buf, int n) {
    if (!job->mpi) return;
    MPI_Reduce(job->rank ? buf : MPI_IN_PLACE, buf, n, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
}

/* Finds a step's folder without opening the step, so that damaged steps are found as well. */

int step_path_list(const char *dir, dcp_step **out, size_t *n) {
    dcp_error err = {0};
    dcp_step *steps;
    size_t all, complete = 0;
    if (dcp_steps_list(dir, &steps, &all, &err)) return program_report(&err);
    for (size_t i = 0; i < all; i++)
        if (steps[i].kind == DCP_STEP_COMPLETE) steps[complete++] = steps[i];
    *out = steps;
    *n = complete;
    return 0;
}

/* Finds the names of the newest complete step and of the one before it; "" for a step that does not
 * exist. */
static int newest_complete(const char *dir, char name[64], char older[64]) {
    dcp_step *steps;
    size_t n;
    int status = step_path_list(dir, &steps, &n);
    if (status) return status;
    snprintf(name, 64, "%s", n > 0 ? steps[n - 1].name : "");
    snprintf(older, 64, "%s", n > 1 ? steps[n - 2].name : "");
    free(steps);
    return 0;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

int step_path_is_step(const char *folder) {
    char dir[PATH_MAX];
    if (!realpath(folder, dir)) return 0; /* opening it will report the error */
    const char *name = strrchr(dir, '/') + 1;
    if (starts_with(name, "step-") || starts_with(name, ".tmp-step-") ||
        starts_with(name, ".abandoned-step-"))
        return 1;
    DIR *d = opendir(dir);
    bool found = false;
    errno = 0;
    for (struct dirent *e; d && !found && (e = readdir(d));)
        if (starts_with(e->d_name, "shard-") || strcmp(e->d_name, "state.h5") == 0) found = true;
    const int code = errno;
    if (d) closedir(d);
    errno = code;
    return !found && (!d || code) ? -1 : found;
}

int step_path_find(const char *ckpt, char *step) {
    char dir[PATH_MAX], name[64], older[64];
    struct stat st;
    if (!realpath(ckpt, dir) || stat(dir, &st)) return program_fail_errno("cannot open", ckpt);
    if (!S_ISDIR(st.st_mode))
        return program_refuse("%s: not a folder; give the step's folder or the directory of steps",
                              ckpt);
    int status = newest_complete(dir, name, older);
    if (status) return status;
    const int is_step = name[0] ? 1 : step_path_is_step(dir);
    if (is_step < 0) return program_fail_errno("cannot look into", ckpt);
    if (!is_step) return program_refuse("%s: holds no complete step", ckpt);
    int given = (int)strlen(ckpt);
    while (given > 1 && ckpt[given - 1] == '/') given--;
    int length = snprintf(step, PATH_MAX, "%.*s%s%s", given, ckpt, name[0] ? "/" : "", name);
    return length < PATH_MAX ? 0 : program_refuse("%s: the path is too long", ckpt);
}

void step_path_note_older(const char *ckpt) {
    char dir[PATH_MAX], name[64], older[64];
    if (!realpath(ckpt, dir) || newest_complete(dir, name, older) || !older[0]) return;
    program_note(
        "%s was used as the newest complete step; the complete step before it is %s: to use that "
        "one, give %s/%s",
        name, older, ckpt, older);
}
