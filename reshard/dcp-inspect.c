/* dcp-inspect: looks into checkpoints; one process, changes nothing. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "inspect.h"
#include "json_text.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"ls", inspect_ls}, {"show", inspect_show}, {"verify", inspect_verify}};

void inspect_print_json(json_t *root) {
    json_text_write(root, 0, stdout);
    json_decref(root);
}

int main(int argc, char **argv) {
    const cli_option none[] = {{0}};
    const cli_program program = {
        "dcp-inspect",
        "ls DIR [--json]\nshow CKPT [NAME[SLICE]] [--json]\nverify CKPT [--all] [--json]",
        "ls lists the steps of a directory; show prints tables or a tensor's values; verify "
        "checks\n"
        "every byte. CKPT is a step's folder, or a directory of steps, meaning its newest "
        "complete\n"
        "one. Each has its own --help.",
        none};
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            argv[1] = argv[0];
            return commands[i].run(argc - 1, argv + 1);
        }
    if (argc > 1 && argv[1][0] != '-')
        return cli_fail(CLI_USAGE, "'%s' is none of ls, show, verify", argv[1]);
    char **args;
    int n, status = cli_parse(&program, argc, argv, 1, 1, &args, &n);
    return status < 0 ? CLI_USAGE : status;
}
