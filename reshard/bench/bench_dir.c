/* DIR of dcp-bench. */
#include "bench/bench_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dcp/dcp.h>

#include "programs/program.h"

/* Whether about.json names this program; or another one, where `by_other`. */
static int is_by(const char *folder, int by_other) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/about.json", folder) >= PATH_MAX) return 0;
    json_t *about = json_load_file(path, 0, NULL);
    const char *tool = json_string_value(json_object_get(about, "tool"));
    int is = tool && (strcmp(tool, BENCH_TOOL) != 0) == by_other;
    json_decref(about);
    return is;
}

/* Out of the way first, as the library does it: what stays is cleaned by the next writer. */
static void remove_step(const char *dir, const char *name) {
    char step[PATH_MAX], trash[PATH_MAX], file[PATH_MAX + 16];
    snprintf(step, sizeof step, "%s/%s", dir, name);
    snprintf(trash, sizeof trash, "%s/.trash-%s", dir, name);
    if (!is_by(step, 0) || rename(step, trash) != 0) return;
    snprintf(file, sizeof file, "%s/state.h5", trash);
    unlink(file);
    snprintf(file, sizeof file, "%s/about.json", trash);
    unlink(file);
    rmdir(trash);
}

void bench_dir_remove_before(const launch *job, const char *dir, uint64_t step) {
    dcp_step *steps;
    size_t n;
    if (job->rank != 0 || dcp_steps_list(dir, &steps, &n, NULL) != DCP_OK) return;
    for (size_t i = 0; i < n; i++)
        if (steps[i].kind == DCP_STEP_COMPLETE && steps[i].step < step)
            remove_step(dir, steps[i].name);
    free(steps);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    syncfs(fd); /* so that the next repeat does not pay for the removal */
    close(fd);
}

uint64_t bench_dir_newest(const launch *job, const char *dir) {
    dcp_step *steps;
    size_t n;
    uint64_t newest = 0;
    if (job->rank == 0 && dcp_steps_list(dir, &steps, &n, NULL) == DCP_OK) {
        for (size_t i = 0; i < n; i++)
            if (steps[i].kind == DCP_STEP_COMPLETE) newest = steps[i].step;
        free(steps);
    }
    launch_broadcast(job, &newest, sizeof newest);
    return newest;
}

int bench_dir_check(const launch *job, const char *dir) {
    dcp_step *steps;
    size_t n;
    int status = PROGRAM_DONE;
    if (job->rank == 0 && dcp_steps_list(dir, &steps, &n, NULL) == DCP_OK) {
        for (size_t i = 0; i < n && status == PROGRAM_DONE; i++) {
            char step[PATH_MAX];
            snprintf(step, sizeof step, "%s/%s", dir, steps[i].name);
            if (steps[i].kind == DCP_STEP_COMPLETE && is_by(step, 1))
                status = program_fail(PROGRAM_USAGE, "%s: another program's; choose another folder",
                                      step);
        }
        free(steps);
    }
    return launch_worst(job, status);
}

void bench_dir_drop_cache(const launch *job, const char *folder) {
    DIR *stream = opendir(folder);
    struct dirent *entry;
    while (stream && (entry = readdir(stream))) {
        int fd = openat(dirfd(stream), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    if (stream) closedir(stream);
    if (job->mpi) MPI_Barrier(MPI_COMM_WORLD);
}
