/* A step that must be refused: by opening or by loading it, and by its verification, each with a
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
    const char *step, *part; /* the folder; what the messages contain */
    int status;              /* of opening or loading */
    int intact_by_verify;    /* 1: only a load considers it wrong */
    unsigned turn;           /* counts cases */
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

/* A command of dcp-inspect ends with 1, and says what is wrong, if the step cannot be opened;
 * otherwise with 0 or 1, not by a signal, and in time. */
static inline int refused_command(const refused *r, int opens, const char *form) {
    char command[1200], said[4096];
    snprintf(command, sizeof command, form, r->step, r->step);
    FILE *out = popen(command, "r");
    if (!out) return 1;
    said[fread(said, 1, sizeof said - 1, out)] = '\0';
    while (fgetc(out) != EOF) continue;
    int ended = pclose(out), status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128;
    if (status == 1 || (opens && status == 0))
        return opens ? 0 : refused_message(command, said, r->part);
    fprintf(stderr, "%s: exit status %d: %s\n", command, status, said);
    return 1;
}

/* Runs all commands if the step can be opened; otherwise the code that they share has refused it,
 * and running one of them, each in turn, is enough. */
static inline int refused_commands(void *ctx) {
    static const char *const forms[] = {
        "timeout 20 $DCP_BIN/dcp-inspect stat %s 2>&1",
        "timeout 20 $DCP_BIN/dcp-inspect diff %s %s 2>&1",
        "timeout 20 $DCP_BIN/dcp-inspect layout --world 4 %s 2>&1",
    };
    const refused *r = ctx;
    dcp_comm *comm;
    dcp_checkpoint *ckpt;
    int wrong = 0;
    if (dcp_comm_self(&comm, NULL)) return 2;
    int opens = dcp_checkpoint_open(comm, r->step, &ckpt, NULL) == DCP_OK;
    if (opens) dcp_checkpoint_close(ckpt);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (opens || r->turn % (sizeof forms / sizeof *forms) == i)
            wrong |= refused_command(r, opens, forms[i]);
    dcp_comm_destroy(comm);
    return wrong;
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

/* `what`: names the case in a failure's message. */
static inline void expect_refused(const char *what, const char *step, int status,
                                  const char *part) {
    static unsigned turn;
    refused r = {.step = step, .part = part, .status = status, .turn = turn++};
    int result = under_limits(refused_check, &r);
    if (!result) result = under_limits(refused_commands, &r);
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
