/* Reasons that have no room any more are counted; what to set is complete or left out. */
#include "models/refusals.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "programs/fail.h"

/* Appends `more`, behind `between` where it is not the first. Nonzero: there is no room. */
static int append_text(char *text, size_t size, const char *between, const char *more) {
    const size_t at = strlen(text), gap = at ? strlen(between) : 0;
    if (at + gap + strlen(more) >= size) return 1;
    snprintf(text + at, size - at, "%s%s", at ? between : "", more);
    return 0;
}

void model_refusals_add(model_refusals *r, const char *key, const char *value, const char *fmt,
                        ...) {
    char reason[200], override[160];
    va_list args;
    va_start(args, fmt);
    core_format(reason, sizeof reason, fmt, args);
    va_end(args);
    r->n++;
    r->told += !append_text(r->reasons, sizeof r->reasons, "; ", reason);
    if (!key) {
        r->helpless = 1;
        return;
    }
    const int n = snprintf(override, sizeof override, "model.%s=%s", key, value);
    if (n < 0 || (size_t)n >= sizeof override ||
        append_text(r->overrides, sizeof r->overrides, " ", override))
        r->helpless = 1;
}

int model_refusals_tell(const model_refusals *r, dcp_error *err) {
    char more[32] = "";
    if (!r->n) return DCP_OK;
    if (r->told < r->n) snprintf(more, sizeof more, "; and %zu more", r->n - r->told);
    if (r->helpless)
        return core_fail(err, DCP_ERR_UNSUPPORTED, "model config: %s%s", r->reasons, more);
    return core_fail(err, DCP_ERR_UNSUPPORTED, "model config: %s%s; to train without, add: %s",
                     r->reasons, more, r->overrides);
}
