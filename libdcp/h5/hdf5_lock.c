/* One lock for all HDF5 calls of the library. A fork also waits for it (core/system.h), so a child
 * finds HDF5 between two calls. */
#include "h5/hdf5_lock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/fail.h"
#include "core/system.h"

/* Finds errors of MPI functions, which HDF5 lists below its own errors. */
static herr_t find_mpi_error(unsigned depth, const H5E_error2_t *e, void *io_failed) {
    (void)depth;
    if (e->min_num == H5E_MPI || e->min_num == H5E_MPIERRSTR) *(int *)io_failed = 1;
    return 0;
}

/* HDF5 calls this when a function of its interface fails. */
static herr_t note_failure(hid_t errors, void *section) {
    return H5Ewalk2(errors, H5E_WALK_UPWARD, find_mpi_error, &((h5_section *)section)->io_failed);
}

/* State of the handlers below, which run at the end of the process; guarded by the lock. */
static struct { bool is_followed, has_lock; } at_exit;

/* When the process exits, HDF5 frees its data while threads may still be in HDF5 calls, for example
 * for saves. So HDF5 is closed here between two calls, and its own handler finds nothing to do.
 * Gives up after PATIENCE_S seconds, in case a thread waits in a call for a dead rank or disk. */
static void close_at_exit(void) {
    enum { PATIENCE_S = 2 };
    if (!core_process_lock_timed_acquire(CORE_LOCK_HDF5, PATIENCE_S)) return;
    at_exit.has_lock = true;
    H5close();
}

static void leave_at_exit(void) {
    if (!at_exit.has_lock) return;
    at_exit.has_lock = false;
    core_process_lock_release(CORE_LOCK_HDF5);
}

/* Handlers run in the reverse order of their registration: first close_at_exit, then HDF5's own
 * handler, which H5open registers, then leave_at_exit. */
static void follow_exit(void) {
    at_exit.is_followed = true;
    atexit(leave_at_exit);
    H5open();
    atexit(close_at_exit);
}

void h5_enter(h5_section *section) {
    core_process_lock_acquire(CORE_LOCK_HDF5);
    if (!at_exit.is_followed) follow_exit();
    section->io_failed = 0;
    H5Eget_auto2(H5E_DEFAULT, &section->print, &section->print_data);
    H5Eset_auto2(H5E_DEFAULT, note_failure, section);
    errno = 0;
}

void h5_leave(const h5_section *section) {
    H5Eset_auto2(H5E_DEFAULT, section->print, section->print_data);
    core_process_lock_release(CORE_LOCK_HDF5);
}

static herr_t first_error(unsigned depth, const H5E_error2_t *e, void *text) {
    if (!depth && e->desc) snprintf(text, 256, "%s", e->desc);
    return 0;
}

int h5_fail(dcp_error *err, const char *what, const char *path) {
    char text[256] = "no detail";
    const int code = errno;                             /* 0: HDF5 itself found an error */
    const bool full = code == ENOSPC || code == EDQUOT; /* MPI-IO reports it as an I/O error */
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_error, text);
    int status = DCP_ERR_IO;
    if (full)
        status = core_fail(err, DCP_ERR_NO_SPACE,
                           "HDF5 can't %s %s: no space left on device; free space there or "
                           "choose another folder (%s)",
                           what, path, text);
    else
        core_fail(err, status, "HDF5 can't %s %s: %s", what, path, text);
    if (full && err) err->system_error = code;
    return core_fail_path(status, path, err);
}
