/* A process exits while another of its threads calls HDF5: HDF5's own handler finds nothing to
 * free. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "h5/hdf5_lock.h"

enum { PROCESSES = 40, FILES = 4 };

static atomic_int made;

/* Makes files in memory, endlessly. */
static void *make_files(void *ctx) {
    for (;;) {
        h5_section section;
        h5_enter(&section);
        const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
        H5Pset_fapl_core(access, 65536, 0);
        const hid_t file = H5Fcreate("exit.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
        const hid_t group = H5Gcreate(file, "model", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Gclose(group);
        H5Fclose(file);
        H5Pclose(access);
        h5_leave(&section);
        atomic_fetch_add(&made, 1);
    }
    return ctx;
}

static void work_and_exit(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, make_files, NULL)) exit(2);
    while (atomic_load(&made) < FILES) usleep(100);
    exit(0);
}

int main(void) {
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) work_and_exit();
        if (waitpid(child, &status, 0) != child || status) {
            fprintf(stderr, "exit.c: process %d ended with status %#x\n", i, (unsigned)status);
            return 1;
        }
    }
    return 0;
}
