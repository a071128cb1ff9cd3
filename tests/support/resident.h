/* How much a rank's resident memory grows between two points. */
#ifndef TESTS_MPI_RESIDENT_H
#define TESTS_MPI_RESIDENT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

/* A sanitizer's shadow memory counts as the process's own. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_SHADOW 1
#else
#define HAS_SHADOW 0
#endif

static inline long status_kib(const char *field) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0) kib = atol(line + strlen(field));
    fclose(file);
    CHECK(kib >= 0);
    return kib;
}

/* Returns the resident memory in KiB, and restarts the measurement of its peak. */
static inline long reset_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    CHECK(file && fputs("5", file) >= 0 && fclose(file) == 0);
    return status_kib("VmRSS:");
}

/* before: the result of reset_peak. */
static inline void check_growth(const char *what, long before, long limit_kib) {
    long growth = status_kib("VmHWM:") - before;
    if (growth > limit_kib) fprintf(stderr, "%s: %ld KiB more\n", what, growth);
    CHECK(growth <= limit_kib);
}

#endif
