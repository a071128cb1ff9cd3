/* Requests to a running dcp-run, as `dcp-run ctl` makes them. */
#pragma once

#include <jansson.h>
#include <stdint.h>

/* Requests to a running dcp-run, as `dcp-run ctl` makes them. A request is a JSON object on a line,
 * {"ask": "resize", "ranks": 4}, and so is its answer, with which the connection ends. Nothing here
 * ever waits for a client. */

typedef struct launcher_control launcher_control;

typedef enum launcher_ask {
    LAUNCHER_ASK_STATUS,
    LAUNCHER_ASK_SAVE,
    LAUNCHER_ASK_RESIZE,
    LAUNCHER_ASK_STOP
} launcher_ask;

typedef struct launcher_request {
    launcher_ask what;
    int ranks; /* of a resize: 1 or more; whether there is room for so many is for the caller */
    uint64_t client; /* who gets the answer */
} launcher_request;

/* Takes requests at `path`; where that is NULL, at `.control` in `dir`, which is made where it is
 * missing; where that is NULL, too, none come. 0, or PROGRAM_USAGE after a message: another
 * supervisor is there, or `path` cannot be made. Where the one in `dir` cannot be made, a message
 * says so, and none come. The caller releases *out with launcher_control_close. */
int launcher_control_open(launcher_control **out, const char *path, const char *dir);

/* Readable when there is something to do. Then launcher_control_next is called until it has no
 * more: requests that it has read show here no longer. */
int launcher_control_fd(const launcher_control *control);

/* 1: a request, which is to be answered once; 0: none. */
int launcher_control_next(launcher_control *control, launcher_request *out);

/* {"ok": true, ...} or {"error": "..."}, which is released. Who has gone gets none. */
void launcher_control_answer(launcher_control *control, uint64_t client, json_t *answer);

/* Requests that wait are answered with an error: the run has ended. Removes what it has made. NULL
 * is allowed. */
void launcher_control_close(launcher_control *control);

/* dcp-run ctl: asks a running dcp-run, and prints what it answers. */

/* With dcp-run's own arguments, of which the first is "ctl"; the exit status: 0, PROGRAM_USAGE
 * where no dcp-run of this user is there, PROGRAM_FAILED where the request failed. */
int launcher_control_main(int argc, char **argv);
