/* The locks of the whole process. A fork copies the one thread that calls it: a lock that another
 * thread holds then would be held for ever in the child. So a fork waits for all of these, and the
 * child begins with all of them free and with what they guard whole. Locks of objects need none of
 * this: a child gets no further with an object than to free it (DCP_ERR_STATE), or, of a
 * checkpoint, finds no lock in it.
 *
 * docs/architecture.md lists what else belongs to the whole process; a test compares. */
#pragma once

/* In the order in which a thread that holds one may take the next. A thread that holds one calls no
 * function of the caller's, which could fork. */
typedef enum core_process_lock {
    CORE_LOCK_HDF5,     /* h5/turn.c: calls of HDF5, and HDF5's own state */
    CORE_LOCK_OPENED,   /* io/use.c: the list of files that are open for use */
    CORE_LOCK_UNSHARED, /* io/unshared.c: the list of files that a child closes */
    CORE_PROCESS_LOCKS
} core_process_lock;

void core_process_lock_take(core_process_lock which);
void core_process_lock_leave(core_process_lock which);

/* 1: taken, within about that many seconds; 0: it is not. */
int core_process_lock_take_within(core_process_lock which, int seconds);

/* With the lock, and before there is anything to do: a child calls `fn` first of all, with all
 * locks. */
void core_process_lock_tell_child(core_process_lock which, void (*fn)(void));
