/* Requests to a running dcp-run, as `dcp-run ctl` makes them. A request is one line with a JSON
 * object, such as {"ask": "resize", "ranks": 4}. Its answer is one line with a JSON object, too;
 * then the connection ends. The functions of the server never wait for a client. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct launcher_control launcher_control;

typedef enum launcher_request_kind {
    LAUNCHER_REQUEST_STATUS,
    LAUNCHER_REQUEST_SAVE,
    LAUNCHER_REQUEST_RESIZE,
    LAUNCHER_REQUEST_STOP
} launcher_request_kind;

typedef struct launcher_request {
    launcher_request_kind what;
    int ranks;       /* of a resize: at least 1; the caller checks whether there are enough slots */
    uint64_t client; /* the client to which the answer is sent */
} launcher_request;

/* Accepts requests at `path`. If `path` is NULL, accepts them at `.control` in `dir`, and makes
 * `dir` if it is missing. If both are NULL, accepts no requests. Returns 0, or PROGRAM_USAGE after
 * a message if another dcp-run accepts requests there already, or if `path` cannot be made. If the
 * socket in `dir` cannot be made, prints a warning, accepts no requests, and returns 0. The caller
 * releases *out with launcher_control_close. */
int launcher_control_open(launcher_control **out, const char *path, const char *dir);

/* Returns a descriptor that is readable when there is work. Then call launcher_control_next until
 * it returns false: requests that it has already read do not make the descriptor readable again. */
int launcher_control_fd(const launcher_control *control);

/* Returns true and fills in a request, which must be answered exactly once; returns false if there
 * is none. */
bool launcher_control_next(launcher_control *control, launcher_request *out);

/* Sends `answer`, which is {"ok": true, ...} or {"error": "..."}, and releases it. If the client is
 * gone, only releases it. */
void launcher_control_answer(launcher_control *control, uint64_t client, json_t *answer);

/* Answers waiting requests with an error, because the run has ended, and removes the socket and the
 * folders that launcher_control_open has made. NULL is allowed. */
void launcher_control_close(launcher_control *control);

/* The client: dcp-run ctl sends a request to a running dcp-run, and prints the answer. */

/* argc, argv: dcp-run's own; argv[1] is "ctl". Returns the exit status: 0, PROGRAM_USAGE if no
 * dcp-run of this user accepts requests at the path, PROGRAM_FAILED if the request failed. */
int launcher_control_main(int argc, char **argv);
