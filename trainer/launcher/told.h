/* What the ranks of a start tell: why they fail, and with which status they end. Each is a file in
 * memory, whose path the ranks find in DCP_RUN_REASON and DCP_RUN_STATUS. */
#pragma once

enum { LAUNCHER_REASON = 1280 };

typedef struct launcher_told {
    int reason_fd, status_fd;     /* -1: there is no such file, and nothing is ever told */
    char reason[LAUNCHER_REASON]; /* of the last start; "": it told none */
    int repeats;                  /* the start before it told the same */
    int is_final;                 /* no restart is to be tried */
    int tells;                    /* the last start's ranks tell their statuses, */
    char statuses[256];           /* these */
} launcher_told;

/* Makes the files and sets the variables for what is started from now on. */
void launcher_told_open(launcher_told *told);
void launcher_told_close(launcher_told *told);

/* Takes what a start that has ended has told, and empties the files for the next one. */
void launcher_told_take(launcher_told *told);

/* Whether `status` may be a rank's: one has told it, or the program tells none at all. */
int launcher_told_has(const launcher_told *told, int status);
