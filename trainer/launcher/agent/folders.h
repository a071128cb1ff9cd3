/* Folders of one start: where mpirun and the ranks keep what a SIGKILL would leave behind, sockets
 * and files of shared memory. Each is a folder `dcp-run.XXXXXX` of its own, locked for as long as
 * the job or a process that looks after it lives. */
#pragma once

enum { LAUNCHER_FOLDERS = 2 }; /* of Open MPI's sessions, and of memory that ranks share */

typedef struct launcher_folders {
    char *path[LAUNCHER_FOLDERS]; /* absolute; NULL: there is none */
    int lock[LAUNCHER_FOLDERS];   /* descriptor; the lock ends when all copies of it are closed */
    int shared[LAUNCHER_FOLDERS]; /* another one removes it */
} launcher_folders;

/* Makes them in the places that Open MPI's variables name, else in TMPDIR and in /dev/shm. 0, or -1
 * after a message. */
int launcher_folders_make(launcher_folders *folders);

/* On another host: makes folders of the same paths ("-": none), which ranks there are told by the
 * same variables. One that is there already is another agent's on the same machine, and is shared.
 * What killed runs have left beside them goes. 0, or -1 after a message. */
int launcher_folders_join(launcher_folders *folders, const char *const paths[LAUNCHER_FOLDERS]);

/* Tells Open MPI of them by the environment of this process. */
void launcher_folders_set(const launcher_folders *folders);

/* Removes them with all that is in them. */
void launcher_folders_remove(const launcher_folders *folders);

/* Closes the locks and frees. */
void launcher_folders_free(launcher_folders *folders);

/* Removes what killed runs of this user have left in those places: folders of that name that belong
 * to the user, hold the mark of dcp-run, and are locked by nobody. */
void launcher_folders_sweep(void);
