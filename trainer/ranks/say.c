/* A line is one write, so that lines of several processes stay whole. */
#include "ranks/say.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Lines may come from the thread that saves. */
static atomic_int is_bar_drawn;

void ranks_bar_draw(const char *text) {
    printf("\r%s\033[K", text);
    fflush(stdout);
    is_bar_drawn = 1;
}

void ranks_bar_clear(void) {
    if (!atomic_exchange(&is_bar_drawn, 0)) return;
    fputs("\r\033[K", stdout);
    fflush(stdout);
}

void ranks_bar_leave(void) {
    if (!atomic_exchange(&is_bar_drawn, 0)) return;
    putchar('\n');
    fflush(stdout);
}

static void line(const char *prefix, const char *fmt, va_list args) {
    char *text;
    if (vasprintf(&text, fmt, args) < 0) text = NULL;
    ranks_bar_clear();
    fprintf(stderr, "dcp-train: %s%s\n", prefix, text ? text : fmt); /* where memory is short */
    free(text);
}

void ranks_say(int rank, const char *fmt, ...) {
    if (rank != 0) return;
    va_list args;
    va_start(args, fmt);
    line("", fmt, args);
    va_end(args);
}

void ranks_warn(int rank, const char *fmt, ...) {
    if (rank != 0) return;
    va_list args;
    va_start(args, fmt);
    line("warning: ", fmt, args);
    va_end(args);
}

void ranks_log(void *ctx, dcp_log_level level, const char *text) {
    (void)ctx;
    if (level == DCP_LOG_WARNING)
        ranks_warn(0, "%s", text);
    else
        ranks_say(0, "%s", text);
}
