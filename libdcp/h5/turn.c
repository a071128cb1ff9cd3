/* One lock for all of the library's calls of HDF5. A fork waits for it too (core/process_lock.h),
 * so a child finds HDF5 between two calls. */
#include "h5/turn.h"

#include <errno.h>
#include <stdio.h>

#include "core/fail.h"
#include "core/process_lock.h"

/* HDF5 puts the errors of MPI's functions under those of its own. */
static herr_t find_mpi_error(unsigned depth, const H5E_error2_t *e, void *io_failed) {
    (void)depth;
    if (e->min_num == H5E_MPI || e->min_num == H5E_MPIERRSTR) *(int *)io_failed = 1;
    return 0;
}

/* HDF5 calls it where a function of its interface fails. */
static herr_t note_failure(hid_t errors, void *turn) {
    return H5Ewalk2(errors, H5E_WALK_UPWARD, find_mpi_error, &((h5_turn *)turn)->io_failed);
}

void h5_enter(h5_turn *turn) {
    core_process_lock_take(CORE_LOCK_HDF5);
    turn->io_failed = 0;
    H5Eget_auto2(H5E_DEFAULT, &turn->print, &turn->print_data);
    H5Eset_auto2(H5E_DEFAULT, note_failure, turn);
    errno = 0;
}

void h5_leave(const h5_turn *turn) {
    H5Eset_auto2(H5E_DEFAULT, turn->print, turn->print_data);
    core_process_lock_leave(CORE_LOCK_HDF5);
}

static herr_t first_error(unsigned depth, const H5E_error2_t *e, void *text) {
    if (!depth && e->desc) snprintf(text, 256, "%s", e->desc);
    return 0;
}

int h5_fail(dcp_error *err, const char *what, const char *path) {
    char text[256] = "no detail";
    const int code = errno;                            /* 0: HDF5 found something wrong itself */
    const int full = code == ENOSPC || code == EDQUOT; /* which MPI-IO calls an I/O error */
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
