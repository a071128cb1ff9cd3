/* dcp-run's command line. */
#pragma once

#include "launcher/hosts/cluster.h"

typedef struct launcher_options {
    launcher_cluster_options cluster;
    int *then_ranks;      /* ranks in restart 1, 2, ...; the last number repeats */
    int then_count;       /* 0: none were given */
    int max_restarts;     /* restarts in a row without a newer step */
    double grace_s;       /* seconds from a request to stop until SIGKILL */
    double stall_s;       /* seconds without progress that count as a stall; 0: not given */
    const char *watch;    /* checkpoint directory; NULL: not given */
    const char *control;  /* path of the socket; NULL: the default */
    const char *logs;     /* folder; NULL: none */
    char *const *program; /* PROGRAM ARGS, ended by NULL */
} launcher_options;

/* Returns -1 to continue, or an exit status. The caller calls launcher_options_free in any case. */
int launcher_options_read(int argc, char **argv, launcher_options *out);
void launcher_options_free(launcher_options *options);
