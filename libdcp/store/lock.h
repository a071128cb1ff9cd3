/* The one writer of a store, and the lock that names it. */
#pragma once

#include "comm/process.h"
#include "dcp/error.h"

/* Who writes into a store: one process, from an open to the close. */

#define STORE_WRITER_ID 17    /* 16 hex digits at random, and a NUL */
#define STORE_WRITER_TEXT 512 /* room for a writer as text */

typedef struct store_writer {
    char host[256]; /* for people */
    comm_process process;
    char id[STORE_WRITER_ID];
    int contested; /* a writer before this one may still be running: see store/lock.h */
    int lockless;  /* and it found no locks that exclude others */
    int has_ended; /* it has closed the store */
} store_writer;

/* A new identity. DCP_ERR_IO: the system gives no random numbers. */
int store_writer_make_id(char id[STORE_WRITER_ID], dcp_error *err);

/* This process, with that identity. */
void store_writer_describe(const char *id, store_writer *out);

/* One line: "host pid start kernel namespace id sole|contested|lockless held|ended pid". The
 * bytes written. A lockless one is contested. */
int store_writer_print(const store_writer *w, char text[STORE_WRITER_TEXT]);

typedef enum store_writer_fate {
    STORE_WRITER_GONE,    /* it has closed the store, or its process is dead */
    STORE_WRITER_RUNS,    /* under this kernel, in this namespace of pids */
    STORE_WRITER_UNKNOWN, /* it ran elsewhere */
} store_writer_fate;

/* The one writer of a directory. `DIR/.lock` names it (store/lock.h), and it holds a lock on that
 * file, where the file system has locks.
 *
 * A lock may be lost without its holder's doing: the file is removed, a lease runs out, or locks
 * are granted to all. So a writer reads the name again before whatever others could see, and one
 * that finds another's name has lost the store. What it does after its last look is kept from
 * having effects by names: it removes and replaces by way of a folder that is named after its
 * identity (store/directory.h), which the next writer takes away when it opens the store.
 *
 * A store is contested where a writer took it while one before may still have been running, and
 * ever after: writers then have temporary names of their own as well. */

typedef struct store_lock store_lock;

/* Takes the directory `dir_fd` for this process, under the identity `id`. `dir` is borrowed.
 * take_over: see dcp_store_options. DCP_ERR_BUSY: another writer has it, or may have it; the
 * message names that one's host and pid, and says what can be done. */
int store_lock_take(int dir_fd, const char *dir, const char *id, int take_over, store_lock **out,
                    dcp_error *err);

/* DCP_ERR_BUSY where a writer has the directory now, or its process runs and has not closed it.
 * Takes nothing and makes nothing. */
int store_lock_check_free(int dir_fd, const char *dir, dcp_error *err);

/* DCP_ERR_BUSY where another writer has taken the store since, or has another directory that is at
 * the store's path now; the message names it. Where `.lock` was removed and nobody took the store,
 * it is taken again. DCP_ERR_NOT_FOUND: the directory was moved or removed, and no writer has what
 * is at its path. DCP_ERR_STATE: this process was forked from the one that took the store. */
int store_lock_check(store_lock *lock, dcp_error *err);

/* The same without a look at the path: for what is complete in the directory, wherever that is. */
int store_lock_check_name(store_lock *lock, dcp_error *err);

/* Whether the directory was removed, so that nothing in it can come back. */
int store_lock_is_removed(const store_lock *lock);

/* DCP_ERR_NOT_FOUND, DCP_ERR_BUSY: the directory is not at its path, and was not removed. Changes
 * nothing, so that any thread may ask. */
int store_lock_check_place(const store_lock *lock, dcp_error *err);

/* What the lock is worth: 0 where the file system has no locks, or grants each to all who ask. */
int store_lock_excludes(const store_lock *lock);

int store_lock_is_contested(const store_lock *lock);

/* Says in the file that the writer has ended, unless another has taken it, and unlocks. A forked
 * process only frees its copy. NULL is ignored. */
void store_lock_release(store_lock *lock);
