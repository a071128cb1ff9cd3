/* A run: all that its starts have in common. */
#pragma once

#include "launcher/budget.h"
#include "launcher/control/control.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/logs.h"
#include "launcher/options.h"
#include "launcher/recovery.h"
#include "launcher/run_signals.h"
#include "launcher/told.h"

enum { LAUNCHER_WAITING = 64 };

/* A request whose answer has to wait. */
typedef struct launcher_waiting {
    uint64_t client;
    uint64_t save;      /* number of the save that it asked for; 0: a resize */
    int start;          /* that was under way */
    uint64_t published; /* what rank 0 told of its last save then */
    int tells; /* the ranks told something at that time: they will tell of their first step */
} launcher_waiting;

typedef struct launcher_run {
    const launcher_options *options;
    const launcher_family *family; /* of mpirun */
    launcher_signals signals;
    launcher_cluster *cluster;
    launcher_control *control; /* NULL: none */
    launcher_output *output;   /* of the start that is under way, for --logs; NULL: none */
    launcher_budget budget;
    launcher_recovery recovery;
    launcher_told told;
    int start;            /* that is under way, from 1 */
    int ranks_before;     /* of the start before a planned one; 0: none is to go back to */
    int was_planned;      /* the end of the start before it */
    int has_trained;      /* some start has done a step */
    int requeue_asked;    /* of the start before it, too late: this one is to save and end */
    uint64_t saves_asked; /* of the start that is under way */
    launcher_waiting waiting[LAUNCHER_WAITING];
    int n_waiting;
} launcher_run;
