/* Whether hosts still answer. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "launcher/agent/folders.h"
#include "launcher/family.h"

enum { LAUNCHER_PROBED = 256 };

typedef struct launcher_probe {
    const launcher_family *family;
    const char *hosts[LAUNCHER_PROBED]; /* the caller's */
    int reached[LAUNCHER_PROBED];       /* by launcher_probe_finish */
    size_t n;
    pid_t pids[LAUNCHER_PROBED];
    double end;
    launcher_folders folders;
} launcher_probe;

enum { LAUNCHER_PROBE_S = 5 };

/* Has mpirun start a process on each of hosts[n], all at once, within `limit_s`. */
void launcher_probe_begin(launcher_probe *probe, double limit_s);
/* Waits until then. A host on which nothing could be started is not reached. */
void launcher_probe_finish(launcher_probe *probe);
