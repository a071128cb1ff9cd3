#include "launcher/told.h"

#include <stdio.h>
#include <string.h>

#include "programs/program.h"

enum { BEGUN = 1, ENDED = 2 }; /* ranks_board_entry.told; plus the status */

void launcher_told_begin(launcher_told *told) {
    launcher_told fresh = {0};
    snprintf(fresh.before, sizeof fresh.before, "%s", told->reason);
    *told = fresh;
}

void launcher_told_reason(launcher_told *told, const char *reason) {
    if (!*told->reason) snprintf(told->reason, sizeof told->reason, "%s", reason);
}

void launcher_told_status(launcher_told *told, long word) {
    if (word >= BEGUN) told->tells = 1;
    if (word >= ENDED && word - ENDED < (long)sizeof told->statuses)
        told->statuses[word - ENDED] = 1;
}

int launcher_told_is_done(long word) { return word == ENDED + PROGRAM_DONE; }

void launcher_told_judge(launcher_told *told) {
    static const char final[] = "final: ";
    told->is_final = strncmp(told->reason, final, sizeof final - 1) == 0;
    if (told->is_final)
        memmove(told->reason, told->reason + sizeof final - 1,
                strlen(told->reason) - (sizeof final - 1) + 1);
    told->repeats = *told->before && strcmp(told->before, told->reason) == 0;
}

int launcher_told_has(const launcher_told *told, int status) {
    return !told->tells ||
           (status >= 0 && status < (int)sizeof told->statuses && told->statuses[status]);
}

int launcher_told_ends(const launcher_told *told) {
    return memchr(told->statuses, 1, sizeof told->statuses) != NULL;
}
