/* dcp-inspect: looks into checkpoints and changes nothing. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/launch.h"
#include "inspect/command_diff.h"
#include "inspect/command_layout.h"
#include "inspect/command_ls.h"
#include "inspect/command_show.h"
#include "inspect/command_stat.h"
#include "inspect/command_verify.h"
#include "programs/arguments.h"
#include "programs/program.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    int alone; /* under a launcher rank 0 does it all */
} commands[] = {{"ls", inspect_ls, 1},         {"show", inspect_show, 1},
                {"verify", inspect_verify, 0}, {"diff", inspect_diff, 0},
                {"stat", inspect_stat, 0},     {"layout", inspect_layout, 1}};

static const char usage[] = "ls DIR\n"
                            "show CKPT [NAME[SLICE]]\n"
                            "verify CKPT [--all]\n"
                            "diff A B [GLOB...]\n"
                            "stat CKPT [GLOB...]\n"
                            "layout CKPT [GLOB...] [--world N] [--svg FILE]";

static const char about[] = "ls      lists the steps of a directory\n"
                            "show    prints the tensors of a step, or one's values\n"
                            "verify  checks every byte\n"
                            "diff    compares two checkpoints\n"
                            "stat    sizes by kind and module, what the numbers are like\n"
                            "layout  who holds what, as a table and as a drawing\n"
                            "\n"
                            "CKPT is a step's folder, or a directory of steps, meaning its newest "
                            "complete one. Each command\n"
                            "has its own --help, and --json. verify, diff and stat use all cores; "
                            "under mpirun the ranks share\n"
                            "their work.";

int main(int argc, char **argv) {
    const program_option none[] = {{0}};
    const program_command program = {
        .name = "dcp-inspect", .usage = usage, .about = about, .options = none};
    /* A heap for each thread would take 64 MiB of what `ulimit -v` allows. */
    mallopt(M_ARENA_MAX, 1);
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            if (commands[i].alone && program_rank() != 0) return PROGRAM_DONE;
            argv[1] = argv[0];
            return commands[i].run(argc - 1, argv + 1);
        }
    if (argc > 1 && argv[1][0] != '-')
        return program_refuse("'%s' is none of ls, show, verify, diff, stat, layout", argv[1]);
    char **args;
    int n, status = program_arguments_parse(&program, argc, argv, 0, 0, &args, &n);
    if (status >= 0) return status;
    return program_refuse(
        "missing command: ls, show, verify, diff, stat or layout; try 'dcp-inspect --help'");
}
