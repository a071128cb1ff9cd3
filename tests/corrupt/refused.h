/* A step that has to be refused: by opening or by loading it, and by its verification, each with a
 * message that names the structure, within bounds of memory and time. */
#ifndef TESTS_REFUSED_H
#define TESTS_REFUSED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bounded.h"
#include "damage.h"
#include "tiny.h"

typedef struct refused {
    const char *step, *part; /* the folder; what the messages say */
    int status;              /* of opening or loading */
    int intact_by_verify;    /* 1: what is wrong is only wrong for a load */
} refused;

static inline int refused_message(const char *who, const char *message, const char *part) {
    if (strstr(message, part)) return 0;
    fprintf(stderr, "%s: '%s' is not in: %s\n", who, part, message);
    return 1;
}

static inline int refused_load(dcp_comm *comm, const char *step, dcp_error *err) {
    tiny t;
    dcp_checkpoint *ckpt;
    int status = dcp_checkpoint_open(comm, step, &ckpt, err);
    if (status) return status;
    if (tiny_make(&t, 0, 1, 0)) return DCP_ERR_NO_MEMORY;
    status = dcp_load(ckpt, t.state, NULL, err);
    tiny_free(&t);
    dcp_checkpoint_close(ckpt);
    return status;
}

static inline int refused_check(void *ctx) {
    const refused *r = ctx;
    findings f;
    dcp_comm *comm;
    dcp_error err = {0};
    if (dcp_comm_self(&comm, NULL)) return 2;
    int status = refused_load(comm, r->step, &err), wrong = status != r->status;
    if (wrong) fprintf(stderr, "load: status %d, expected %d\n", status, r->status);
    wrong |= refused_message("load", err.message, r->part);
    int found = findings_of(r->step, &f);
    if (found != (r->intact_by_verify ? DCP_OK : DCP_ERR_CORRUPT)) {
        fprintf(stderr, "verify: status %d: %s\n", found, f.text);
        wrong = 1;
    }
    if (!r->intact_by_verify) wrong |= refused_message("verify", f.text, r->part);
    dcp_comm_destroy(comm);
    return wrong;
}

/* `what`: which case it is, for a failure. */
static inline void expect_refused(const char *what, const char *step, int status,
                                  const char *part) {
    refused r = {.step = step, .part = part, .status = status};
    int result = under_limits(refused_check, &r);
    if (result) fail_msg("%s: %d (above 128: ended by a signal, of time or memory)", what, result);
}

static inline void expect_loads(const char *step) {
    dcp_comm *comm;
    dcp_error err = {0};
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    if (refused_load(comm, step, &err)) fail_msg("%s: %s", step, err.message);
    dcp_comm_destroy(comm);
}

#endif
