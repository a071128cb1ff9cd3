/* What a config.json asks for that is not there. All of it is told in one message, with what to set
 * on the command line of dcp-train to do without. */
#pragma once

#include <stddef.h>

#include <dcp/error.h>

/* Zeroed: nothing is refused. */
typedef struct model_refusals {
    size_t n, told;      /* reasons; those of them that had room */
    int helpless;        /* one of them goes away by no setting */
    char reasons[500];   /* joined */
    char overrides[400]; /* likewise, of the form model.key=value */
} model_refusals;

/* One more reason, as printf tells it: the key, its value and why. `key` set to `value` takes it
 * away; NULL: no setting does. */
void model_refusals_add(model_refusals *r, const char *key, const char *value, const char *fmt, ...)
    DCP_PRINTF(4, 5);

/* DCP_ERR_UNSUPPORTED with all reasons, or DCP_OK where there is none. */
int model_refusals_tell(const model_refusals *r, dcp_error *err);
