/* Paths of private stores may name the rank or the host: ranks can share a file system without
 * sharing a directory on it. All else in the list is the same on all ranks. What becomes of a save
 * into a store is noted for the next one. */
#include "tiers/tiers.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "plan/agreement.h"

/* The value of the braces at `at`, and their length; 0 where they are unknown. */
static size_t stand_in(const char *at, int rank, char *out, size_t size) {
    if (strncmp(at, "{rank}", 6) == 0) {
        snprintf(out, size, "%d", rank);
        return 6;
    }
    if (strncmp(at, "{host}", 6) == 0 && gethostname(out, size - 1) == 0) {
        out[size - 1] = '\0';
        return 6;
    }
    return 0;
}

int tiers_given_path(const dcp_tier *given, int rank, char **out, dcp_error *err) {
    char path[PATH_MAX] = "", word[256];
    size_t length = 0;
    if (!given->path) return core_fail(err, DCP_ERR_ARG, "a store needs a path");
    if (!given->is_private && strchr(given->path, '{'))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: only a private store's path is another one on each rank",
                         given->path);
    for (const char *at = given->path; *at;) {
        size_t taken = 1;
        word[0] = *at, word[1] = '\0';
        if (*at == '{' && !(taken = stand_in(at, rank, word, sizeof word)))
            return core_fail(err, DCP_ERR_ARG, "%s: braces hold {rank} or {host}", given->path);
        if (length + strlen(word) >= sizeof path)
            return core_fail(err, DCP_ERR_ARG, "the path is too long: %.80s...", given->path);
        length += (size_t)sprintf(path + length, "%s", word);
        at += taken;
    }
    *out = strdup(path);
    return *out ? DCP_OK : core_fail_memory(err, length);
}

/* All that ranks must agree on, in one number. */
static uint64_t print_of(const dcp_tier *list, size_t n) {
    uint64_t raw = core_crc64_raw(~0ULL, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        const char *redundancy = list[i].redundancy ? list[i].redundancy : "";
        uint64_t what[] = {list[i].every, list[i].keep, list[i].is_private != 0, list[i].layout};
        raw = core_crc64_raw(raw, what, sizeof what);
        raw = core_crc64_raw(raw, redundancy, strlen(redundancy) + 1);
    }
    return raw;
}

int tiers_given_agree(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_error *err) {
    int status = DCP_OK;
    if (!list || n < 1 || n > DCP_MAX_TIERS)
        status =
            core_fail(err, DCP_ERR_ARG, "%zu stores: from 1 to %d are possible", n, DCP_MAX_TIERS);
    status = comm_agree(comm, status, err);
    if (status) return status;
    const plan_value value = {"the list of stores (all but the paths)", print_of(list, n), 1};
    return plan_same(comm, &value, 1, err);
}

void tiers_log(const dcp_tiers *tiers, dcp_log_level level, const char *fmt, ...) {
    if (!tiers->log || tiers->comm->rank != 0) return;
    char line[sizeof((dcp_error *)0)->message];
    va_list args;
    va_start(args, fmt);
    core_format(line, sizeof line, fmt, args);
    va_end(args);
    tiers->log(tiers->log_ctx, level, line);
}

void tiers_note(tier *t, uint64_t step, int status) {
    t->owed = t->failed = status != DCP_OK;
    if (status) return;
    t->step = step;
    t->has_step = 1;
}

void tiers_warn(const dcp_tiers *tiers, const tier *t, uint64_t step, const dcp_error *err) {
    tiers_log(tiers, DCP_LOG_WARNING,
              "step %llu is not saved in %s: %s; the save is tried again with the next one",
              (unsigned long long)step, t->store->dir, err->message);
}
