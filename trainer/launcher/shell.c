#include "launcher/shell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/remote.h"
#include "launcher/ask_program.h"
#include "programs/program.h"

enum { INFO_BYTES = 1 << 16, WORDS_BYTES = 4096 };

static const double ask_limit_s = 30; /* programs may lie on a slow file system */

/* What ompi_info says of a parameter, without quotes; "" where it says nothing. */
static void find_value(const char *info, const char *name, char *out, size_t size) {
    const char *at = strstr(info, name);
    if (at) at += strlen(name);
    if (at && *at == '"') at++;
    snprintf(out, size, "%.*s", at ? (int)strcspn(at, "\"\n") : 0, at ? at : "");
}

static int is_true(const char *info, const char *name) {
    char value[16];
    find_value(info, name, value, sizeof value);
    return strcmp(value, "true") == 0;
}

/* Whether Open MPI takes the starter of a batch system (Grid Engine, LoadLeveler), as it does where
 * no AGENT is named. */
static int is_by_batch_system(const char *info) {
    char source[32];
    find_value(info, ":plm_rsh_agent:source:", source, sizeof source);
    if (*source && strcmp(source, "default") != 0) return 0;
    if (getenv("SGE_ROOT") && getenv("ARC") && getenv("PE_HOSTFILE") && getenv("JOB_ID") &&
        !is_true(info, ":plm_rsh_disable_qrsh:value:"))
        return 1;
    return getenv("LOADL_STEP_ID") && !is_true(info, ":plm_rsh_disable_llspawn:value:");
}

/* As Open MPI does it: ssh forwards no X11 where the user does not say so. */
static int takes_x(const char *agent) {
    char words[WORDS_BYTES], *rest = words;
    snprintf(words, sizeof words, "%s", agent);
    const char *program = strsep(&rest, " ");
    const char *slash = strrchr(program, '/');
    if (strcmp(slash ? slash + 1 : program, "ssh") != 0) return 0;
    for (const char *word; (word = strsep(&rest, " "));)
        if (strcasecmp(word, "-x") == 0) return 0;
    return 1;
}

/* The first of AGENT : AGENT : ... that there is. */
static void choose(char *agents, char *words, size_t size) {
    for (char *one; (one = strsep(&agents, ":"));) {
        char program[WORDS_BYTES];
        one += strspn(one, " ");
        for (size_t n = strlen(one); n > 0 && one[n - 1] == ' '; n--) one[n - 1] = '\0';
        snprintf(program, sizeof program, "%.*s", (int)strcspn(one, " "), one);
        if (!*program || !launcher_ask_finds(program)) continue;
        snprintf(words, size, "%s%s", one, takes_x(one) ? " -x" : "");
        return;
    }
}

const char *launcher_shell_words(const launcher_family_remote *by) {
    static char words[WORDS_BYTES];
    static int asked;
    static char info[INFO_BYTES];
    char *const ask[] = {(char *)by->asked, "--param", "plm",        "rsh",
                         "--level",         "9",       "--parsable", NULL};
    const char *named = getenv(by->shell_variable);
    char agents[WORDS_BYTES / 2];
    if (!asked) {
        asked = 1;
        if (by->asked) launcher_ask(ask, ask_limit_s, info, sizeof info);
        find_value(info, ":plm_rsh_agent:value:", agents, sizeof agents);
        if (!*agents) /* nobody answers: the answer in most places */
            snprintf(agents, sizeof agents, "%s", named ? named : "ssh : rsh");
        if (!is_by_batch_system(info)) choose(agents, words, sizeof words);
    }
    return *words ? words : NULL;
}

/* A pipe that holds the line, as stdin. 0, or -1 with errno. */
static int put_on_stdin(const char *line) {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const ssize_t n = (ssize_t)strlen(line);
    const int failed = write(ends[1], line, (size_t)n) != n || dup2(ends[0], STDIN_FILENO) < 0;
    close(ends[1]);
    if (ends[0] != STDIN_FILENO) close(ends[0]);
    return failed ? -1 : 0;
}

/* Becomes this command, with the key on its stdin. */
static int become(char **command) {
    const char *key = getenv(LAUNCHER_KEY);
    char line[LAUNCHER_KEY_BYTES + 2];
    snprintf(line, sizeof line, "%s\n", key ? key : "");
    if (put_on_stdin(line) != 0)
        return program_fail(PROGRAM_FAILED, "cannot hand the key to %s: %s", command[0],
                            strerror(errno));
    unsetenv(LAUNCHER_KEY);
    execvp(command[0], command);
    return program_fail(PROGRAM_FAILED, "cannot run %s: %s", command[0], strerror(errno));
}

int launcher_shell_main(int argc, char **argv) {
    if (argc < 3) return program_fail(PROGRAM_USAGE, "'shell' is for dcp-run itself, with --hosts");
    return become(argv + 2);
}

/* Where the next "--" is, from `at` on; argc: nowhere. */
static int find_end(int argc, char **argv, int at) {
    while (at < argc && strcmp(argv[at], "--") != 0) at++;
    return at;
}

int launcher_shell_start_main(int argc, char **argv) {
    const int agent = 2, shell = find_end(argc, argv, agent) + 1,
              host = find_end(argc, argv, shell) + 1;
    char **command = calloc((size_t)argc + 1, sizeof *command);
    int n = 0;
    if (host >= argc || !command)
        return program_fail(PROGRAM_USAGE, "'start' is for dcp-run itself, with --hosts");
    for (int i = shell; i < host - 1; i++) command[n++] = argv[i];
    command[n++] = argv[host];
    command[n++] = argv[0];
    for (int i = agent; i < shell - 1; i++) command[n++] = argv[i];
    for (int i = host + 1; i < argc; i++) command[n++] = argv[i];
    return become(command);
}
