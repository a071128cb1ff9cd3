/* What becomes of a save into a store is noted for the next one. */
#include "tiers/tiers.h"

#include <stdarg.h>

#include "comm/comm.h"
#include "core/fail.h"

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
