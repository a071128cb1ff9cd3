/* What the ranks of a start have told: why they failed, and with which statuses they ended. */
#pragma once

enum { LAUNCHER_REASON = 1280 };

typedef struct launcher_told {
    char reason[LAUNCHER_REASON]; /* of the last start; "": it told none */
    char before[LAUNCHER_REASON]; /* of the start before it */
    int repeats;                  /* both are the same */
    int is_final;                 /* no restart is to be tried */
    int tells;                    /* the last start's ranks tell their statuses, */
    char statuses[256];           /* these */
} launcher_told;

/* For the next start. */
void launcher_told_begin(launcher_told *told);
/* A host's ranks have told this; the first reason counts. */
void launcher_told_reason(launcher_told *told, const char *reason);
/* A rank's word on the board. */
void launcher_told_status(launcher_told *told, long word);
/* Whether by that word a rank ends with PROGRAM_DONE. */
int launcher_told_is_done(long word);
/* Once the start has ended. */
void launcher_told_judge(launcher_told *told);

/* Whether `status` may be a rank's: one has told it, or the program tells none at all. */
int launcher_told_has(const launcher_told *told, int status);
/* Whether some rank has told with which status it ends. */
int launcher_told_ends(const launcher_told *told);
