/* dcp-run's command line. */
#ifndef TRAINER_LAUNCHER_OPTIONS_H
#define TRAINER_LAUNCHER_OPTIONS_H

typedef struct run_options {
    int ranks;             /* of the first start */
    const int *then_ranks; /* ranks of restart 1, 2, ...; the last one repeats */
    int then_count;        /* 0: always `ranks` */
    int max_restarts;      /* in a row without a newer step */
    double grace_s;        /* from a request to stop until SIGKILL */
    const char *watch;     /* checkpoint directory; NULL: not known */
    char *const *program;  /* PROGRAM ARGS, ended by NULL */
} run_options;

/* What main does after parsing: go on, or exit with `status`. */
typedef struct run_parsed {
    int go_on;
    int status;
} run_parsed;

/* Fills `out`, which options_free releases. Prints help, the version, or what is wrong. */
run_parsed options_parse(int argc, char **argv, run_options *out);
void options_free(run_options *options);

/* Ranks of start number `start`, from 0. */
int options_ranks(const run_options *options, int start);

#endif
