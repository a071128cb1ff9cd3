/* Why a start failed, where the program says that a restart would only repeat it: a line in a file
 * in memory, whose path the ranks find in DCP_RUN_REASON. */
#ifndef TRAINER_LAUNCHER_REASON_H
#define TRAINER_LAUNCHER_REASON_H

typedef struct run_reason {
    int fd;         /* -1: there is no such file, and nothing is ever told */
    char last[256]; /* of the last start that failed; "" where it told none */
} run_reason;

/* Makes the file and sets DCP_RUN_REASON for what is started from now on. */
void reason_open(run_reason *reason);
void reason_close(run_reason *reason);

/* Called after a failure: whether it has the reason that the failure before it had. Empties the
 * file. */
int reason_repeats(run_reason *reason);

#endif
