/* Filling a dcp_error with one line. The message is cut where it does not fit; newlines become
 * spaces, so that a message stays a line whatever text it quotes. */
#include "fail.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

int trainer_fail(dcp_error *err, int status, const char *fmt, ...) {
    if (!err) return status;
    err->status = status;
    err->rank = -1;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    for (char *c = err->message; *c; c++)
        if (*c == '\n') *c = ' ';
    return status;
}

int trainer_fail_memory(dcp_error *err, uint64_t bytes) {
    return trainer_fail(err, DCP_ERR_NO_MEMORY, "out of memory: %" PRIu64 " bytes", bytes);
}
