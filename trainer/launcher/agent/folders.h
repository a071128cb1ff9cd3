/* The folders of one start, in which mpirun and the ranks keep what a SIGKILL would leave behind:
 * sockets and files of shared memory. Each is a new folder `dcp-run.XXXXXX`, locked as long as the
 * job, or a process that watches it, is alive. */
#pragma once

#include <stdbool.h>

enum { LAUNCHER_FOLDERS = 2 }; /* for the sessions of Open MPI, and for memory that ranks share */

typedef struct launcher_folders {
    char *path[LAUNCHER_FOLDERS]; /* absolute; NULL: none */
    int lock[LAUNCHER_FOLDERS];   /* descriptor; the lock ends when all copies of the descriptor are
                                     closed */
    bool shared[LAUNCHER_FOLDERS]; /* it belongs to another agent, which removes it */
} launcher_folders;

/* Makes the folders in the places that Open MPI's variables name, otherwise in TMPDIR and /dev/shm.
 * Returns 0, or -1 after a message. */
int launcher_folders_make(launcher_folders *folders);

/* Makes folders with the same paths on another host, where ranks find them through the same
 * variables. The path "-" stands for no folder. A folder that exists belongs to another agent on
 * the same machine, and is shared. Also removes folders that killed runs have left beside them.
 * Returns 0, or -1 after a message. */
int launcher_folders_join(launcher_folders *folders, const char *const paths[LAUNCHER_FOLDERS]);

/* Sets the variables that tell Open MPI where the folders are, in the environment of this
 * process. */
void launcher_folders_set(const launcher_folders *folders);

/* Removes the folders and their contents. */
void launcher_folders_remove(const launcher_folders *folders);

/* Closes the locks and frees the paths. */
void launcher_folders_free(launcher_folders *folders);

/* Removes the folders that killed runs of this user have left in the places of
 * launcher_folders_make: folders `dcp-run.XXXXXX` that belong to the user, contain dcp-run's mark,
 * and are not locked. */
void launcher_folders_remove_stale(void);
