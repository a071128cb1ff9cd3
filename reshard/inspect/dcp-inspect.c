/* dcp-inspect: examines checkpoints, and changes nothing. The table has a row for each command. */
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/launch.h"
#include "inspect/commands.h"
#include "programs/arguments.h"
#include "programs/program.h"

static const struct command {
    const char *name, *arguments, *what;
    int (*run)(int argc, char **argv);
    bool alone; /* under a launcher, only rank 0 works */
} commands[] = {
    {"ls", "DIR", "lists the steps of a directory", inspect_ls, true},
    {"show", "CKPT [NAME[SLICE]]", "prints the tensors of a step, or the values of one",
     inspect_show, true},
    {"verify", "CKPT [--all]", "checks every byte", inspect_verify, false},
    {"prove", "CKPT [GLOB...]", "prints the tensors' checksums and the state id", inspect_prove,
     false},
    {"diff", "A B [GLOB...]", "compares two checkpoints", inspect_diff, false},
    {"stat", "CKPT [GLOB...]", "prints sizes by kind and module, and statistics", inspect_stat,
     false},
    {"layout", "CKPT [GLOB...] [--world N] [--svg FILE]",
     "shows which rank holds what, as a table or drawing", inspect_layout, true},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const char about_all[] =
    "CKPT is a step's folder, or a directory of steps, meaning its newest complete one. Each\n"
    "command has its own --help, and --json. verify, diff and stat use all cores; under mpirun\n"
    "the ranks share their work.";

/* The text of --help, and the list of the commands' names. */
typedef struct help {
    char usage[500], about[900], names[90];
} help;

static void make_help(help *h) {
    char *usage = h->usage, *about = h->about, *names = h->names;
    for (const struct command *c = commands; c < commands + COMMANDS; c++) {
        usage += sprintf(usage, "%s%s %s", c == commands ? "" : "\n", c->name, c->arguments);
        about += sprintf(about, "%-7s %s\n", c->name, c->what);
        names += sprintf(names, "%s%s", c == commands ? "" : ", ", c->name);
    }
    sprintf(about, "\n%s", about_all);
}

int main(int argc, char **argv) {
    help h;
    char **args;
    int n;
    const program_option none[] = {{0}};
    const program_command program = {
        .name = "dcp-inspect", .usage = h.usage, .about = h.about, .options = none};
    make_help(&h);
    /* If each thread had its own heap, each heap would use 64 MiB of address space, which `ulimit
     * -v` limits. */
    mallopt(M_ARENA_MAX, 1);
    for (size_t i = 0; argc > 1 && i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            if (commands[i].alone && program_rank() != 0) return PROGRAM_DONE;
            argv[1] = argv[0];
            return commands[i].run(argc - 1, argv + 1);
        }
    if (argc > 1 && argv[1][0] != '-')
        return program_refuse("'%s' is none of %s", argv[1], h.names);
    int status = program_arguments_parse(&program, argc, argv, 0, 0, &args, &n);
    if (status >= 0) return status;
    return program_refuse("missing command: one of %s; try 'dcp-inspect --help'", h.names);
}
