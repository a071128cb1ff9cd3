/* A reader's hold on a step, for programs. */
#include <errno.h>
#include <stdlib.h>

#include "core/fail.h"
#include "core/path.h"
#include "dcp/store.h"
#include "step/hold.h"

struct dcp_pin {
    step_hold *hold;
};

static int fail_gone(const char *path, dcp_error *err) {
    errno = ENOENT;
    return core_fail_errno(err, "cannot pin", path);
}

static int fail_unsupported(const char *path, int code, dcp_error *err) {
    core_fail(
        err, DCP_ERR_UNSUPPORTED,
        "cannot pin %s: this file system has no locks that others see (F_OFD_SETLK): copy the "
        "step to another one",
        path);
    if (err) err->system_error = code;
    return core_fail_path(DCP_ERR_UNSUPPORTED, path, err);
}

/* errno says why there is no lock. */
static int fail_without_lock(const char *path, dcp_error *err) {
    switch (errno) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
        return core_fail_path(core_fail(err, DCP_ERR_NOT_FOUND,
                                        "cannot pin %s: it is no step, as it has no about.json",
                                        path),
                              path, err);
    case ENOLCK:
    case ENOSYS:
    case EINVAL:
    case EOPNOTSUPP:
        return fail_unsupported(path, errno, err);
    default:
        return core_fail_errno(err, "cannot lock about.json of", path);
    }
}

/* A file system may grant locks to all who ask. */
static int check_lock(const step_hold *hold, const char *path, dcp_error *err) {
    if (!hold->lock) return fail_without_lock(path, err);
    return step_hold_is_held(hold->folder_fd, ".") ? DCP_OK : fail_unsupported(path, 0, err);
}

/* `latest` may lead to another step by the time that the one it led to is locked. */
static int hold_named(const char *path, step_hold **out, dcp_error *err) {
    enum { TIMES = 100 };
    for (int i = 0; i < TIMES; i++) {
        int gone;
        step_hold *hold = step_hold_open(path, 1, &gone);
        if (!hold && gone) return fail_gone(path, err);
        if (!hold) return core_fail_errno(err, "cannot pin", path);
        const int status = check_lock(hold, path, err);
        const int stands = !hold->is_claimed && step_hold_is_named(hold);
        *out = hold;
        if (!status && stands) return DCP_OK;
        step_hold_close(hold);
        if (stands) return status;
    }
    return core_fail_path(
        core_fail(err, DCP_ERR_NOT_FOUND, "cannot pin %s: its store's writer is removing it", path),
        path, err);
}

int dcp_step_pin(const char *step_path, dcp_pin **out, dcp_error *err) {
    if (!step_path || !out)
        return core_fail(err, DCP_ERR_ARG, "dcp_step_pin: step_path or out is NULL");
    int status = core_path_check(NULL, step_path, err);
    if (status) return status;
    dcp_pin *pin = malloc(sizeof *pin);
    if (!pin) return core_fail_memory(err, sizeof *pin);
    status = hold_named(step_path, &pin->hold, err);
    if (status)
        free(pin);
    else
        *out = pin;
    return status;
}

void dcp_step_unpin(dcp_pin *pin) {
    if (!pin) return;
    step_hold_close(pin->hold);
    free(pin);
}
