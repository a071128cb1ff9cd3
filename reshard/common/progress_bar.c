#include "common/progress_bar.h"

#include <stdio.h>
#include <unistd.h>

#include "programs/program.h"

void progress_bar_start(progress_bar *bar, const char *what) {
    double now = program_now_s();
    *bar = (progress_bar){.what = what,
                          .start_s = now,
                          .last_s = now,
                          .on = isatty(STDERR_FILENO) && program_rank() == 0};
}

void progress_bar_update(progress_bar *bar, uint64_t done, uint64_t total) {
    enum { WIDTH = 40 };
    char speed[32];
    if (!bar->on) return;
    double now = program_now_s(), elapsed = now - bar->start_s;
    if (elapsed < 2 || now - bar->last_s < 0.2) return;
    double part = total ? (double)done / (double)total : 1;
    int full = (int)(part * WIDTH);
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f%%  %s/s ", bar->what, full,
            "########################################", WIDTH - full, "", part * 100,
            program_bytes_text((uint64_t)((double)done / elapsed), speed));
    fflush(stderr);
    bar->last_s = now;
    bar->shown = 1;
}

void progress_bar_end(progress_bar *bar) {
    if (bar->shown) fputs("\r\033[K", stderr);
    bar->on = bar->shown = 0;
}
