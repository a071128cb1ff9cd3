/* The command line of dcp-train. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

typedef struct options {
    const char *path; /* CONFIG.json; of --plot METRICS.jsonl */
    char *const *overrides;
    int n_overrides;
    const char *trace, *plot; /* their files; NULL: not asked for */
    int ranks;                /* of --plan */
    int plan, print_config, dry_run, print_help, print_version;
} options;

/* The text of --help. */
extern const char options_help[];

/* 0, or -1 after a message. Only where `is_loud` it prints. Strings are argv's. */
int options_parse(int argc, char **argv, int is_loud, options *out);

#endif
