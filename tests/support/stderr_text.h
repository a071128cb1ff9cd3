/* Captures stderr between two calls, for tests of messages. */
#pragma once

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static FILE *caught_stderr;
static int kept_stderr = -1;

static void stderr_text_begin(void) {
    fflush(stderr);
    caught_stderr = tmpfile();
    kept_stderr = dup(STDERR_FILENO);
    assert_true(caught_stderr && kept_stderr >= 0);
    dup2(fileno(caught_stderr), STDERR_FILENO);
}

/* Valid until the next call. */
static const char *stderr_text_end(void) {
    static char text[8192];
    fflush(stderr);
    dup2(kept_stderr, STDERR_FILENO);
    close(kept_stderr);
    rewind(caught_stderr);
    text[fread(text, 1, sizeof text - 1, caught_stderr)] = '\0';
    fclose(caught_stderr);
    return text;
}
