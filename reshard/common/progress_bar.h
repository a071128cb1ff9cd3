/* A progress bar on stderr, on a terminal only, once two seconds have passed. */
#pragma once

#include <stdint.h>

typedef struct progress_bar {
    const char *what;
    double start_s, last_s;
    int on, shown;
} progress_bar;

void progress_bar_start(progress_bar *bar, const char *what);
void progress_bar_update(progress_bar *bar, uint64_t done, uint64_t total);
void progress_bar_end(progress_bar *bar);
