/* The single writer of a store, and the lock that names the writer. */
#pragma once

#include <stdbool.h>

#include "comm/process.h"
#include "dcp/error.h"

/* The writer of a store: one process, between an open and the close. */

#define STORE_WRITER_ID 17    /* 16 random hex digits, and a NUL */
#define STORE_WRITER_TEXT 512 /* large enough for a writer as text */

typedef struct store_writer {
    char host[256]; /* only for messages */
    comm_process process;
    char id[STORE_WRITER_ID];
    bool contested; /* a writer before this one may still be running: see store_lock */
    bool lockless;  /* `contested` is set because no locks that exclude others were found */
    bool has_ended; /* the writer has closed the store */
} store_writer;

/* Makes a new identity. DCP_ERR_IO: the system provides no random numbers. */
int store_writer_make_id(char id[STORE_WRITER_ID], dcp_error *err);

/* Describes this process as a writer with identity `id`. */
void store_writer_describe(const char *id, store_writer *out);

/* Prints one line: "host pid start kernel namespace id sole|contested|lockless held|ended pid".
 * Returns the number of bytes written. A lockless writer is contested, too. */
int store_writer_print(const store_writer *w, char text[STORE_WRITER_TEXT]);

typedef enum store_writer_state {
    STORE_WRITER_GONE,    /* the writer has closed the store, or its process has ended */
    STORE_WRITER_RUNS,    /* the writer's process runs under this kernel, in this PID namespace */
    STORE_WRITER_UNKNOWN, /* the writer ran elsewhere, so whether it has ended is not known */
} store_writer_state;

/* The lock of a directory. `DIR/.lock` names the one writer, which holds a lock on that file if the
 * file system has locks.
 *
 * A writer may lose the lock through no action of its own: the file is removed, a lease expires, or
 * the file system grants locks to everyone. So it reads the name again before each change that
 * others could see. If it finds another writer's name, it has lost the store. If it loses the store
 * after its last check, its removals and replacements fail: they go through a folder named after
 * its identity (store/directory.h), which the next writer removes when it opens the store.
 *
 * A store is contested if a writer took it while a previous writer might still have been running.
 * It remains contested; its writers also use temporary names of their own. */

typedef struct store_lock store_lock;

/* Takes the directory `dir_fd` for this process, under the identity `id`. `dir` is borrowed.
 * take_over: see dcp_store_options. DCP_ERR_BUSY: another writer has the directory, or may have it;
 * the message names that writer's host and pid, and says how to proceed. */
int store_lock_acquire(int dir_fd, const char *dir, const char *id, int take_over, store_lock **out,
                       dcp_error *err);

/* Returns DCP_ERR_BUSY if another writer holds the lock, or if the named writer's process runs and
 * has not closed the store. Takes no lock and creates nothing. */
int store_lock_check_free(int dir_fd, const char *dir, dcp_error *err);

/* Checks that this process still has the store. If `.lock` was removed and no other writer has
 * taken the store, takes it again. DCP_ERR_BUSY: another writer has taken the store, or a different
 * directory is now at the store's path and has a writer; the message names that writer.
 * DCP_ERR_NOT_FOUND: the directory was moved or removed, and its path now has no directory, or one
 * without a writer. DCP_ERR_STATE: this process was forked from the one that took the store. */
int store_lock_check(store_lock *lock, dcp_error *err);

/* Returns DCP_ERR_STATE unless this process is `opener`, which opened the store in `dir`. */
int store_lock_check_opener(const char *dir, int64_t opener, dcp_error *err);

/* Like store_lock_check, but checks neither the path nor whether this process was forked. Used once
 * a change to the directory is complete, wherever the directory is. */
int store_lock_check_name(store_lock *lock, dcp_error *err);

/* Returns true if the directory was removed, so it cannot come back. */
bool store_lock_is_removed(const store_lock *lock);

/* Returns DCP_ERR_NOT_FOUND or DCP_ERR_BUSY if the directory is no longer at its path, unless it
 * was removed. Changes nothing, so any thread may call it. */
int store_lock_check_location(const store_lock *lock, dcp_error *err);

/* Returns false if the lock does not exclude other writers: the file system has no locks, or grants
 * each lock to everyone. */
bool store_lock_excludes(const store_lock *lock);

bool store_lock_is_contested(const store_lock *lock);

/* Marks the writer in the file as ended, unless another writer has taken the file, and unlocks it.
 * A forked process only frees its copy. NULL is ignored. */
void store_lock_release(store_lock *lock);
