/* Paths of private stores may name the rank, the host or what the environment says: ranks can share
 * a file system without sharing a directory on it. All else in the list is the same on all ranks.
 */
#include "tiers/tiers.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/option.h"
#include "core/path.h"
#include "core/sized.h"
#include "plan/agreement.h"

/* {env:NAME}, and its length; 0 where it is not closed. An unset variable is no value. */
static size_t environment(const char *at, const char **value, char *out, size_t size) {
    size_t n = strcspn(at, "}");
    if (at[n] != '}' || n - 5 >= size) return 0;
    snprintf(out, size, "%.*s", (int)(n - 5), at + 5);
    *value = getenv(out);
    return n + 1;
}

/* The name that DCP_HOST gives the host counts here, as it does where ranks are told apart by host
 * (comm/place.h). */
static size_t host(const char **value, char *out, size_t size) {
    const char *named = getenv("DCP_HOST");
    if (named && *named)
        *value = named;
    else if (gethostname(out, size - 1))
        return 0;
    out[size - 1] = '\0';
    return 6;
}

/* The value of the braces at `at`, and their length; 0 where they are unknown. NULL: a variable of
 * the environment, named in `out`, is not set. */
static size_t stand_in(const char *at, int rank, const char **value, char *out, size_t size) {
    *value = out;
    if (strncmp(at, "{env:", 5) == 0) return environment(at, value, out, size);
    if (strncmp(at, "{rank}", 6) == 0) {
        snprintf(out, size, "%d", rank);
        return 6;
    }
    if (strncmp(at, "{host}", 6) == 0) return host(value, out, size);
    return 0;
}

/* `given` with what stands for another value on each rank replaced, malloc'd. */
static int fill_in(const char *given, int rank, char **out, dcp_error *err) {
    char text[PATH_MAX] = "", word[256];
    size_t length = 0;
    for (const char *at = given; *at;) {
        size_t taken = 1;
        const char *value = word;
        word[0] = *at, word[1] = '\0';
        if (*at == '{' && !(taken = stand_in(at, rank, &value, word, sizeof word)))
            return core_fail(err, DCP_ERR_ARG, "%s: braces hold {rank}, {host} or {env:NAME}",
                             given);
        if (!value || !*value)
            return core_fail(err, DCP_ERR_ARG, "%s: %s is not set in the environment", given, word);
        if (length + strlen(value) >= sizeof text)
            return core_fail(err, DCP_ERR_ARG, "the path is too long: %.80s...", given);
        length += (size_t)sprintf(text + length, "%s", value);
        at += taken;
    }
    *out = strdup(text);
    return *out ? DCP_OK : core_fail_memory(err, length);
}

int tiers_given_path(const dcp_tier *given, int rank, char **out, dcp_error *err) {
    if (!given->path) return core_fail(err, DCP_ERR_ARG, "a store needs a path");
    if (!given->is_private && strchr(given->path, '{'))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: only a private store's path is another one on each rank",
                         given->path);
    int status = fill_in(given->path, rank, out, err);
    if (status || !core_path_check(NULL, *out, err)) return status;
    free(*out);
    *out = NULL;
    return DCP_ERR_UNSUPPORTED;
}

int tiers_given_domain(const dcp_tier *given, int rank, char **out, dcp_error *err) {
    *out = NULL;
    return given->domain ? fill_in(given->domain, rank, out, err) : DCP_OK;
}

/* All that ranks must agree on, in one number. */
static uint64_t print_of(const dcp_tier *list, size_t n) {
    uint64_t raw = core_crc64_raw(~0ULL, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        const char *redundancy = list[i].redundancy ? list[i].redundancy : "";
        uint64_t what[] = {list[i].every,
                           list[i].keep,
                           list[i].is_private != 0,
                           list[i].layout,
                           (uint64_t)list[i].stripe_count,
                           list[i].stripe_bytes};
        raw = core_crc64_raw(raw, what, sizeof what);
        raw = core_crc64_raw(raw, redundancy, strlen(redundancy) + 1);
    }
    return raw;
}

int tiers_given_take(const dcp_tier *list, size_t i, dcp_tier *own, dcp_error *err) {
    int status = core_sized_check(list, sizeof *own, "DCP_TIER_INIT", err);
    if (status) return status;
    const dcp_tier *at = (const void *)((const char *)list + i * list->size);
    status = core_sized_take(own, sizeof *own, at, "DCP_TIER_INIT", err);
    if (!status && at->size != list->size)
        status = core_fail(err, DCP_ERR_ARG,
                           "store %zu of the list has size %zu, the first %zu: all are made with "
                           "DCP_TIER_INIT",
                           i, at->size, list->size);
    if (!status)
        status = core_option_check_choice("layout", (int)own->layout, DCP_LAYOUT_SHARDED, err);
    return status;
}

int tiers_given_agree(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_tier *own,
                      dcp_error *err) {
    int status = DCP_OK;
    if (!list || n < 1 || n > DCP_MAX_TIERS)
        status =
            core_fail(err, DCP_ERR_ARG, "%zu stores: from 1 to %d are possible", n, DCP_MAX_TIERS);
    for (size_t i = 0; i < n && !status; i++) status = tiers_given_take(list, i, &own[i], err);
    status = comm_agree(comm, status, err);
    if (status) return status;
    const plan_value value = {"the list of stores (all but the paths and domains)",
                              print_of(own, n), 1};
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

void tiers_warn(const dcp_tiers *tiers, const tier *t, uint64_t step, const dcp_error *err) {
    tiers_log(tiers, DCP_LOG_WARNING,
              "step %llu is not saved in %s: %s; the save is tried again with the next one",
              (unsigned long long)step, t->store->dir, err->message);
}
