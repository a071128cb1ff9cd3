#include "launcher/mpirun.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/remote.h"
#include "launcher/budget.h"
#include "launcher/family.h"
#include "launcher/rank_program.h"
#include "programs/program.h"

/* An agent that receives nothing from dcp-run for 4 s ends its ranks, so a query must take less
 * time. */
static const double slurm_limit_s = 2;

static int query_scontrol(char *const *argv, char *text, size_t size) {
    return launcher_capture_output(argv, slurm_limit_s, text, size);
}

/* Returns false if this node is the job's only one. In that case mpirun does not need Slurm. */
static bool has_other_nodes(void) {
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    return !getenv("SLURMD_NODENAME") || !nodes || strcmp(nodes, "1") != 0;
}

int launcher_slurm_check(void) {
    static const char *const needed[] = {"srun", "scontrol"};
    char *const ping[] = {"scontrol", "ping", NULL};
    char text[512];
    if (!has_other_nodes()) return 0;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!launcher_program_exists(needed[i]))
            return program_fail(PROGRAM_FAILED,
                                "this is Slurm job %s, but %s, which dcp-run needs to start ranks "
                                "on the job's nodes, is not in PATH: install Slurm's client "
                                "programs, or name hosts by "
                                "--hosts",
                                getenv("SLURM_JOB_ID"), needed[i]);
    if (query_scontrol(ping, text, sizeof text) == 0) return 0;
    return program_fail(PROGRAM_FAILED,
                        "this is Slurm job %s, and no controller of Slurm answers ('scontrol "
                        "ping'): start slurmctld; outside of a job, unset SLURM_JOB_ID",
                        getenv("SLURM_JOB_ID"));
}

/* Allows Slurm steps to share CPUs, because the step of the last start may still be ending. */
void launcher_slurm_set_environment(void) {
    if (getenv("SLURM_JOB_ID")) setenv("SLURM_OVERLAP", "1", 1);
}

/* Makes srun pass this variable on to other nodes, whatever the user has specified. To be called in
 * the process that becomes mpirun. */
static void launcher_slurm_pass(const char *name) {
    const char *passed = getenv("SLURM_EXPORT_ENV");
    char *more = NULL;
    if (!passed || strncmp(passed, "ALL", 3) == 0) return;
    const bool is_empty = !*passed || strcmp(passed, "NONE") == 0 || strcmp(passed, "NIL") == 0;
    if (asprintf(&more, "%s%s%s", is_empty ? "" : passed, is_empty ? "" : ",", name) < 0) return;
    setenv("SLURM_EXPORT_ENV", more, 1);
    free(more);
}

/* Returns what follows `key` in the text; NULL if it is missing. */
static const char *value_of(const char *text, const char *key) {
    const char *found = strstr(text, key);
    return found ? found + strlen(key) : NULL;
}

static bool begins_with(const char *text, const char *word) {
    return text && strncmp(text, word, strlen(word)) == 0;
}

/* Returns true if `scontrol show job` reports a preemption. During its grace time a preempted job
 * still runs, but its PreemptTime is set. When it is put back into the queue, its Restarts
 * increases. */
static bool shows_preemption(const char *text) {
    const char *eligible = value_of(text, "\n   PreemptEligibleTime=");
    const char *when = eligible ? value_of(eligible, " PreemptTime=") : NULL;
    const char *requeue = value_of(text, "\n   Requeue=");
    const char *restarts = requeue ? value_of(requeue, " Restarts=") : NULL;
    const char *ours = getenv("SLURM_RESTART_COUNT");
    if (begins_with(value_of(text, "\n   JobState="), "CANCELLED")) return false;
    if (when && !begins_with(when, "None")) return true;
    if (begins_with(value_of(text, "\n   JobState="), "PREEMPTED")) return true;
    return restarts && atol(restarts) > (ours ? atol(ours) : 0);
}

bool launcher_slurm_is_preempted(void) {
    char *job = getenv("SLURM_JOB_ID");
    char *const show[] = {"scontrol", "show", "job", job, NULL};
    char text[8192];
    if (!job || !*job) return false;
    return query_scontrol(show, text, sizeof text) == 0 && shows_preemption(text);
}

enum { INFO_BYTES = 1 << 16, WORDS_BYTES = 4096 };

static const double agent_limit_s = 30; /* programs may be on a slow file system */

/* Finds the value of a parameter in the output of ompi_info, without quotes; "" if it is missing.
 */
static void find_value(const char *info, const char *name, char *out, size_t size) {
    const char *at = strstr(info, name);
    if (at) at += strlen(name);
    if (at && *at == '"') at++;
    snprintf(out, size, "%.*s", at ? (int)strcspn(at, "\"\n") : 0, at ? at : "");
}

static bool is_true(const char *info, const char *name) {
    char value[16];
    find_value(info, name, value, sizeof value);
    return strcmp(value, "true") == 0;
}

/* Returns true if Open MPI starts processes on other hosts through a batch system (Grid Engine,
 * LoadLeveler). It never does that if the user has named an AGENT. */
static bool is_by_batch_system(const char *info) {
    char source[32];
    find_value(info, ":plm_rsh_agent:source:", source, sizeof source);
    if (*source && strcmp(source, "default") != 0) return false;
    if (getenv("SGE_ROOT") && getenv("ARC") && getenv("PE_HOSTFILE") && getenv("JOB_ID") &&
        !is_true(info, ":plm_rsh_disable_qrsh:value:"))
        return true;
    return getenv("LOADL_STEP_ID") && !is_true(info, ":plm_rsh_disable_llspawn:value:");
}

/* Returns true if AGENT is ssh without -x or -X. Like Open MPI, dcp-run then adds -x, so X11 is
 * forwarded only if the user has specified that. */
static bool takes_x(const char *agent) {
    char words[WORDS_BYTES], *rest = words;
    snprintf(words, sizeof words, "%s", agent);
    const char *program = strsep(&rest, " ");
    const char *slash = strrchr(program, '/');
    if (strcmp(slash ? slash + 1 : program, "ssh") != 0) return false;
    for (const char *word; (word = strsep(&rest, " "));)
        if (strcasecmp(word, "-x") == 0) return false;
    return true;
}

/* `agents` is a list AGENT : AGENT : ... Copies the first one that is installed to `words`. */
static void choose(char *agents, char *words, size_t size) {
    for (char *one; (one = strsep(&agents, ":"));) {
        char program[WORDS_BYTES];
        one += strspn(one, " ");
        for (size_t n = strlen(one); n > 0 && one[n - 1] == ' '; n--) one[n - 1] = '\0';
        snprintf(program, sizeof program, "%.*s", (int)strcspn(one, " "), one);
        if (!*program || !launcher_program_exists(program)) continue;
        snprintf(words, size, "%s%s", one, takes_x(one) ? " -x" : "");
        return;
    }
}

/* Returns the words of the AGENT that this family of mpirun uses, such as "ssh -x": the user's, or
 * the default. Returns NULL if Open MPI uses a batch system, which passes the environment on, or if
 * no AGENT is installed. The text is static; only the first call queries Open MPI. */
static const char *launcher_shell_words(const launcher_family_remote *by) {
    static char words[WORDS_BYTES];
    static bool asked;
    static char info[INFO_BYTES];
    char *const ask[] = {
        (char *)by->shell_reporter, "--param", "plm", "rsh", "--level", "9", "--parsable", NULL};
    const char *named = getenv(by->shell_variable);
    char agents[WORDS_BYTES / 2];
    if (!asked) {
        asked = true;
        if (by->shell_reporter) launcher_capture_output(ask, agent_limit_s, info, sizeof info);
        find_value(info, ":plm_rsh_agent:value:", agents, sizeof agents);
        if (!*agents) /* no answer: use the usual words */
            snprintf(agents, sizeof agents, "%s", named ? named : "ssh : rsh");
        if (!is_by_batch_system(info)) choose(agents, words, sizeof words);
    }
    return *words ? words : NULL;
}

/* Replaces stdin by a pipe that holds `line`. Returns 0, or -1 with errno. */
static int put_on_stdin(const char *line) {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const ssize_t n = (ssize_t)strlen(line);
    const bool failed = write(ends[1], line, (size_t)n) != n || dup2(ends[0], STDIN_FILENO) < 0;
    close(ends[1]);
    if (ends[0] != STDIN_FILENO) close(ends[0]);
    return failed ? -1 : 0;
}

static int become(char **command) {
    const char *key = getenv(LAUNCHER_KEY);
    char line[LAUNCHER_KEY_BYTES + 2];
    snprintf(line, sizeof line, "%s\n", key ? key : "");
    if (put_on_stdin(line) != 0)
        return program_fail(PROGRAM_FAILED, "cannot pass the key to %s: %s", command[0],
                            strerror(errno));
    unsetenv(LAUNCHER_KEY);
    execvp(command[0], command);
    return program_fail(PROGRAM_FAILED, "cannot run %s: %s", command[0], strerror(errno));
}

int launcher_shell_main(int argc, char **argv) {
    if (argc < 3)
        return program_fail(PROGRAM_USAGE,
                            "'shell' is only for dcp-run itself, which uses it with --hosts");
    return become(argv + 2);
}

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
        return program_fail(PROGRAM_USAGE,
                            "'start' is only for dcp-run itself, which uses it with --hosts");
    for (int i = shell; i < host - 1; i++) command[n++] = argv[i];
    command[n++] = argv[host];
    command[n++] = argv[0];
    for (int i = agent; i < shell - 1; i++) command[n++] = argv[i];
    for (int i = host + 1; i < argc; i++) command[n++] = argv[i];
    return become(command);
}

#define REPLACED " (deleted)" /* added by the kernel */

static const double ask_limit_s = 30;

enum { EXIT_CANNOT_EXEC = 127, REPLACED_BYTES = sizeof REPLACED - 1 };

extern char **environ;

/* A growing list of arguments, which are all allocated. */
typedef struct words {
    char **at;
    size_t n, room;
    bool failed;
} words;

static void add_word(words *w, const char *text) {
    if (w->n + 2 > w->room) {
        char **more = realloc(w->at, (2 * w->room + 32) * sizeof *more);
        if (!more) {
            w->failed = true;
            return;
        }
        w->at = more;
        w->room = 2 * w->room + 32;
    }
    w->at[w->n] = strdup(text);
    if (!w->at[w->n]) w->failed = true;
    if (w->at[w->n]) w->at[++w->n] = NULL;
}

static void add_words(words *w, ...) {
    va_list list;
    va_start(list, w);
    for (const char *text; (text = va_arg(list, const char *));) add_word(w, text);
    va_end(list);
}

static void add_text(words *w, const char *text) {
    char *copy = strdup(text ? text : ""), *rest = copy;
    w->failed |= !copy;
    for (char *word; (word = strsep(&rest, " "));)
        if (*word) add_word(w, word);
    free(copy);
}

/* Returns true if ranks on other hosts get this variable of dcp-run's environment; ranks on this
 * host get all of them. Excludes variables that differ between hosts, that dcp-run sets for mpirun,
 * or that are only for agents. */
static bool is_exported(const char *entry) {
    static const char *const prefixes[] = {
        "DCP_",      "OMP_",       "NCCL_",   "CUDA_",  "UCX_",          "MKL_",
        "OPENBLAS_", "HDF5_",      "MASTER_", "TORCH_", "TORCHELASTIC_", "LD_LIBRARY_PATH=",
        "PATH=",     "PYTHONPATH="};
    static const char *const local[] = {
        "DCP_RUN_BOARD=", "DCP_RUN_REASON=", "DCP_RUN_JOB=", "DCP_HOST=", LAUNCHER_KEY "="};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (strncmp(entry, local[i], strlen(local[i])) == 0) return false;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

static void add_exports(words *w, const launcher_family *family) {
    char *list = NULL;
    size_t bytes;
    FILE *names = open_memstream(&list, &bytes);
    for (char **entry = environ; names && *entry; entry++) {
        const char *end = strchr(*entry, '=');
        char name[256];
        if (!end || !is_exported(*entry)) continue;
        const int n = snprintf(name, sizeof name, "%.*s", (int)(end - *entry), *entry);
        if (n <= 0 || (size_t)n >= sizeof name) continue;
        if (family->pass) add_words(w, family->pass, name, NULL);
        fprintf(names, "%s%s", ftell(names) ? "," : "", name);
    }
    if (!names || fclose(names) != 0) w->failed = true;
    if (family->pass_list && !w->failed) add_words(w, family->pass_list, list, NULL);
    free(list);
}

/* Returns true for a path that a shell on another host reads unchanged. */
static bool is_plain(const char *path) {
    return path[strspn(path,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-")] ==
           '\0';
}

static const char *folder_or_none(const launcher_command *c, size_t i) {
    return c->folders->path[i] && is_plain(c->folders->path[i]) ? c->folders->path[i] : "-";
}

/* Finds dcp-run's own path, for command lines; "": not found. */
static void find_self(char self[PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);
    /* if dcp-run has been reinstalled meanwhile, its replacement is at the same path */
    if (n > REPLACED_BYTES && memcmp(self + n - REPLACED_BYTES, REPLACED, REPLACED_BYTES) == 0)
        n -= REPLACED_BYTES;
    self[n > 0 ? n : 0] = '\0';
}

/* Finds dcp-run's own path, and checks that it is plain. Returns 0, or -1 after a message. */
static int find_plain_self(char self[PATH_MAX]) {
    find_self(self);
    if (*self && is_plain(self)) return 0;
    fprintf(stderr,
            "dcp-run: a shell on another host could not use dcp-run's path, %s: install dcp-run "
            "where its path has only letters, digits and / . _ + -\n",
            self);
    return -1;
}

/* Returns a part of an agent's command line: the words between dcp-run's path and the program that
 * the agent starts; NULL: no memory. */
static char *agent_words(const launcher_command *c) {
    char *text;
    const int n = asprintf(&text, "agent %d %s %s %s", c->listener->port, c->listener->addresses,
                           folder_or_none(c, 0), folder_or_none(c, 1));
    return n < 0 ? NULL : text;
}

/* Adds the parameters that name the programs to start in place of the daemon and of ssh. */
static int add_parameters(words *w, const launcher_command *c, const char *self) {
    const launcher_family_remote *by = c->family->remote;
    char *agent = NULL, *shell = NULL, number[16], *own = agent_words(c);
    const char *shell_words = launcher_shell_words(by);
    const int n = own ? asprintf(&agent, "%s %s %s", self, own, by->daemon) : -1;
    free(own);
    if (n < 0) return -1;
    snprintf(number, sizeof number, "%zu", c->placement->n + 1);
    add_words(w, by->option, by->program, agent, by->option, by->at_once, number, NULL);
    for (size_t i = 0; i < sizeof by->on / sizeof *by->on; i++)
        add_words(w, by->option, by->on[i], "1", NULL);
    add_words(w, c->family->pass, LAUNCHER_KEY "=", NULL); /* so ranks on this host get no key */
    free(agent);
    if (!shell_words) return 0;
    if (asprintf(&shell, "%s shell %s", self, shell_words) < 0) return -1;
    add_words(w, by->option, by->shell, shell, NULL);
    free(shell);
    return 0;
}

/* Makes mpirun start dcp-run in place of ssh. Called with HOST COMMAND, dcp-run then becomes
 * `ssh HOST dcp-run agent ... COMMAND`. */
static int add_starter(words *w, launcher_command *c, const char *self) {
    const launcher_family_remote *by = c->family->remote;
    const char *shell = launcher_shell_words(by), *given = getenv(by->starter_words);
    char *own = agent_words(c);
    add_text(w, by->starter);
    add_word(w, self);
    if (own && asprintf(&c->starter_words, "start %s -- %s %s --", own, shell ? shell : "ssh -x",
                        given ? given : "") < 0)
        c->starter_words = NULL;
    free(own);
    return c->starter_words ? 0 : -1;
}

/* Adds the options that start agents on other hosts. The key is not among them, because everybody
 * can read a command line; mpirun has the key in its environment. */
static int add_agent(words *w, launcher_command *c) {
    char self[PATH_MAX];
    if (find_plain_self(self) != 0) return -1;
    return c->family->remote->option ? add_parameters(w, c, self) : add_starter(w, c, self);
}

static int write_host_file(const launcher_command *c, char *path, size_t size) {
    snprintf(path, size, "%s/hosts", c->folders->path[0]);
    FILE *file = fopen(path, "we");
    for (size_t i = 0; file && i < c->placement->n; i++)
        if (c->placement->at[i].slots > 0)
            fprintf(file, "%s%s%d\n", c->placement->at[i].name, c->family->slots,
                    c->placement->at[i].slots);
    if (file && fclose(file) == 0) return 0;
    fprintf(stderr, "dcp-run: cannot write %s: %s\n", path, strerror(errno));
    return -1;
}

/* Adds the options that name the hosts of the ranks. Returns 0, or -1 after a message. */
static int add_hosts(words *w, launcher_command *c) {
    char hosts[PATH_MAX];
    const bool is_needed =
        c->listener || c->family->remote->option; /* MPICH would use ssh even for this host */
    if (c->placement->n == 0 || !is_needed) {
        add_text(w, c->family->one_host);
        return 0;
    }
    if (write_host_file(c, hosts, sizeof hosts) != 0) return -1;
    add_words(w, c->family->host_file, hosts, NULL);
    add_exports(w, c->family);
    return c->listener ? add_agent(w, c) : 0;
}

int launcher_mpirun_prepare(launcher_command *c) {
    words w = {0};
    char number[16], self[PATH_MAX];
    const bool is_train = launcher_watched_is_train(c->program[0]);
    if (!is_train) launcher_rank_set_environment(c->placement);
    snprintf(number, sizeof number, "%d", c->placement->ranks);
    add_words(&w, "mpirun", "-n", number, NULL);
    add_text(&w, c->family->always);
    if (c->output) add_text(&w, c->family->tag);
    const int failed = add_hosts(&w, c);
    c->n_options = w.n;
    find_self(self);
    if (!is_train || c->family->hands_mask_on) add_words(&w, self, LAUNCHER_RANK, NULL);
    for (char *const *arg = c->program; *arg; arg++) add_word(&w, *arg);
    c->argv = w.at;
    if (!failed && w.failed) fprintf(stderr, "dcp-run: out of memory\n");
    return failed || w.failed ? -1 : 0;
}

void launcher_mpirun_remove_program(launcher_command *c) {
    for (char **arg = c->argv + c->n_options; *arg; arg++) {
        free(*arg);
        *arg = NULL;
    }
}

void launcher_mpirun_free(char **argv) {
    for (char **arg = argv; arg && *arg; arg++) free(*arg);
    free(argv);
}

/* Runs mpirun with --version: it then starts nothing, but still checks its other options first. */
bool launcher_mpirun_refuses(char *const *argv) {
    char text[16];
    size_t n = 0;
    while (argv[n]) n++;
    char **ask = calloc(n + 2, sizeof *ask);
    if (!ask) return false;
    memcpy(ask, argv, n * sizeof *ask);
    ask[n] = "--version";
    const int status = launcher_capture_output(ask, ask_limit_s, text, sizeof text);
    free(ask);
    return status > 0;
}

/* Adds the job's mark to DCP_RUN_JOB; a nested job has the marks of all jobs around it. */
static void add_mark(const char *mark) {
    char *marks = NULL;
    const char *outer = getenv("DCP_RUN_JOB");
    if (asprintf(&marks, "%s%s%s", outer ? outer : "", outer ? ":" : "", mark) < 0) return;
    setenv("DCP_RUN_JOB", marks, 1);
    free(marks);
}

/* Removes the variables of a launcher that may have started dcp-run: they would be mistaken for the
 * variables that mpirun sets for its ranks. */
static void forget_launcher(void) {
    for (int i = 0; i <= PROGRAM_BY_PMIX; i++) {
        const program_launcher *by = &program_launchers[i];
        const char *const names[] = {by->rank, by->size, by->local_rank, by->local_size};
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (names[k]) unsetenv(names[k]);
    }
}

/* Sets the environment variables of mpirun. Open MPI refuses to run as root without
 * OMPI_ALLOW_RUN_AS_ROOT and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM. dcp-train gets one thread per rank, so
 * the number of threads does not change the bits of its results. */
static void set_environment(const launcher_command *c) {
    forget_launcher();
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    if (c->family->quiet) setenv(c->family->quiet, "1", 0);
    launcher_slurm_set_environment();
    if (launcher_watched_is_train(c->program[0])) setenv("OMP_NUM_THREADS", "1", 0);
    launcher_folders_set(c->folders);
    add_mark(c->mark);
    unsetenv(LAUNCHER_KEY); /* the key of another run, which may have started this one */
    if (!c->listener) return;
    setenv(LAUNCHER_KEY, c->listener->key, 1);
    if (c->starter_words) setenv(c->family->remote->starter_words, c->starter_words, 1);
    launcher_slurm_pass(LAUNCHER_KEY);
}

static void set_streams(const launcher_command *c) {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    for (int stream = STDOUT_FILENO; c->output && stream <= STDERR_FILENO; stream++)
        dup2(launcher_output_writer(c->output, stream), stream);
}

/* mpirun gets a session of its own, so Ctrl-C reaches only dcp-run, which passes it on. */
void launcher_mpirun_exec(void *ctx) {
    const launcher_command *c = ctx;
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGINT); /* sent when the agent dies; mpirun then ends its ranks */
    set_streams(c);
    set_environment(c);
    /* Without this mask, mpirun would end before the ranks have saved, if its output has no reader
     * (SIGPIPE), or if all processes of a service receive SIGTERM. Ranks unblock these signals
     * (launcher_rank_main). */
    sigset_t mask = *c->mask;
    sigaddset(&mask, SIGPIPE);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    execvp(c->argv[0], c->argv);
    fprintf(stderr, "dcp-run: cannot run mpirun: %s\n", strerror(errno));
    _exit(EXIT_CANNOT_EXEC);
}
