#include "stdout.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int stdout_end(const char *program, int status) {
    const int failed = ferror(stdout) != 0;
    if ((fclose(stdout) == 0 && !failed) || errno == EPIPE) return status;
    fprintf(stderr, "%s: cannot write to stdout: %s\n", program, strerror(errno));
    return status == 0 ? 3 : status;
}
