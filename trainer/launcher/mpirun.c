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
#include "launcher/rank_program.h"
#include "launcher/shell.h"
#include "launcher/slurm.h"
#include "launcher/watched.h"
#include "programs/program.h"

#define REPLACED " (deleted)" /* which the kernel adds */

enum { EXIT_CANNOT_EXEC = 127, REPLACED_BYTES = sizeof REPLACED - 1 };

extern char **environ;

/* Arguments that grow; all of them are allocated. */
typedef struct words {
    char **at;
    size_t n, room;
    int failed;
} words;

static void add_word(words *w, const char *text) {
    if (w->n + 2 > w->room) {
        char **more = realloc(w->at, (2 * w->room + 32) * sizeof *more);
        if (!more) {
            w->failed = 1;
            return;
        }
        w->at = more;
        w->room = 2 * w->room + 32;
    }
    w->at[w->n] = strdup(text);
    if (!w->at[w->n]) w->failed = 1;
    if (w->at[w->n]) w->at[++w->n] = NULL;
}

static void add_words(words *w, ...) {
    va_list list;
    va_start(list, w);
    for (const char *text; (text = va_arg(list, const char *));) add_word(w, text);
    va_end(list);
}

/* What ranks on other hosts are to have of our environment, as those here have it all. Not what an
 * agent tells the ranks of its own host, or mpirun of its own, nor what is for agents alone. */
static int is_exported(const char *entry) {
    static const char *const prefixes[] = {
        "DCP_",      "OMP_",       "NCCL_",   "CUDA_",  "UCX_",          "MKL_",
        "OPENBLAS_", "HDF5_",      "MASTER_", "TORCH_", "TORCHELASTIC_", "LD_LIBRARY_PATH=",
        "PATH=",     "PYTHONPATH="};
    static const char *const local[] = {
        "DCP_RUN_BOARD=", "DCP_RUN_REASON=", "DCP_RUN_JOB=", "DCP_HOST=", LAUNCHER_KEY "="};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (strncmp(entry, local[i], strlen(local[i])) == 0) return 0;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0) return 1;
    return 0;
}

static void add_exports(words *w) {
    for (char **entry = environ; *entry; entry++) {
        const char *end = strchr(*entry, '=');
        char name[256];
        if (!end || !is_exported(*entry)) continue;
        const int n = snprintf(name, sizeof name, "%.*s", (int)(end - *entry), *entry);
        if (n > 0 && (size_t)n < sizeof name) add_words(w, "-x", name, NULL);
    }
}

/* A shell on another host reads it. */
static int is_plain(const char *path) {
    return path[strspn(path,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-")] ==
           '\0';
}

static const char *folder_or_none(const launcher_command *c, size_t i) {
    return c->folders->path[i] && is_plain(c->folders->path[i]) ? c->folders->path[i] : "-";
}

/* dcp-run's own path, for command lines; "": there is none. */
static void find_self(char self[PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);
    /* what replaced it where it has been installed anew meanwhile, at the same path */
    if (n > REPLACED_BYTES && memcmp(self + n - REPLACED_BYTES, REPLACED, REPLACED_BYTES) == 0)
        n -= REPLACED_BYTES;
    self[n > 0 ? n : 0] = '\0';
}

/* 0, or -1 after a message. */
static int find_plain_self(char self[PATH_MAX]) {
    find_self(self);
    if (*self && is_plain(self)) return 0;
    fprintf(stderr,
            "dcp-run: a shell on another host would not take dcp-run's path, %s: install it "
            "where the path has letters, digits, and none but / . _ + - besides\n",
            self);
    return -1;
}

/* What is to be started on other hosts instead of orted, and how. The key is on no command line,
 * which everybody may read: mpirun has it in its environment, and ranks here have none. */
static int add_agent(words *w, const launcher_command *c) {
    char self[PATH_MAX], *agent = NULL, *shell = NULL, number[16];
    const char *shell_words = launcher_shell_words();
    if (find_plain_self(self) != 0) return -1;
    if (asprintf(&agent, "%s agent %d %s %s %s orted", self, c->listener->port,
                 c->listener->addresses, folder_or_none(c, 0), folder_or_none(c, 1)) < 0)
        return -1;
    snprintf(number, sizeof number, "%zu", c->placement->n + 1);
    /* all by dcp-run's own host, at once, as agents stay */
    add_words(w, "--mca", "orte_launch_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1",
              "--mca", "plm_rsh_num_concurrent", number, "--mca", "orte_leave_session_attached",
              "1", "-x", LAUNCHER_KEY "=", NULL);
    free(agent);
    if (!shell_words) return 0;
    if (asprintf(&shell, "%s %s", self, shell_words) < 0) return -1;
    add_words(w, "--mca", "plm_rsh_agent", shell, NULL);
    free(shell);
    return 0;
}

static int write_host_file(const launcher_command *c, char *path, size_t size) {
    snprintf(path, size, "%s/hosts", c->folders->path[0]);
    FILE *file = fopen(path, "we");
    for (size_t i = 0; file && i < c->placement->n; i++)
        if (c->placement->at[i].slots > 0)
            fprintf(file, "%s slots=%d\n", c->placement->at[i].name, c->placement->at[i].slots);
    if (file && fclose(file) == 0) return 0;
    fprintf(stderr, "dcp-run: cannot write %s: %s\n", path, strerror(errno));
    return -1;
}

int launcher_mpirun_prepare(launcher_command *c) {
    words w = {0};
    char number[16], hosts[PATH_MAX], self[PATH_MAX];
    if (!launcher_watched_is_train(c->program[0])) launcher_rank_set_environment(c->placement);
    snprintf(number, sizeof number, "%d", c->placement->ranks);
    add_words(&w, "mpirun", "--bind-to", "none", "-n", number, NULL);
    if (c->tag_output) add_words(&w, "--tag-output", NULL);
    int failed = 0;
    if (c->placement->n == 0) {
        add_word(&w, "--oversubscribe");
    } else {
        failed = write_host_file(c, hosts, sizeof hosts);
        add_words(&w, "--hostfile", hosts, NULL);
        add_exports(&w);
    }
    if (!failed && c->listener) failed = add_agent(&w, c);
    find_self(self);
    if (!launcher_watched_is_train(c->program[0])) add_words(&w, self, LAUNCHER_RANK, NULL);
    for (char *const *arg = c->program; *arg; arg++) add_word(&w, *arg);
    c->argv = w.at;
    if (!failed && w.failed) fprintf(stderr, "dcp-run: out of memory\n");
    return failed || w.failed ? -1 : 0;
}

void launcher_mpirun_free(launcher_command *c) {
    for (char **arg = c->argv; arg && *arg; arg++) free(*arg);
    free(c->argv);
    c->argv = NULL;
}

/* Nested jobs belong to all of those that they are part of. */
static void add_mark(const char *mark) {
    char *marks = NULL;
    const char *outer = getenv("DCP_RUN_JOB");
    if (asprintf(&marks, "%s%s%s", outer ? outer : "", outer ? ":" : "", mark) < 0) return;
    setenv("DCP_RUN_JOB", marks, 1);
    free(marks);
}

/* Open MPI refuses to run as root unless told. That it says no more than the ranks do is an option
 * of version 4 alone, and a variable in 4 and 5. dcp-train has one thread per rank, on which equal
 * bits rest. */
static void set_environment(const launcher_command *c) {
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    setenv("OMPI_MCA_orte_execute_quiet", "1", 0);
    setenv("PRTE_MCA_prte_execute_quiet", "1", 0);
    launcher_slurm_set_environment();
    if (launcher_watched_is_train(c->program[0])) setenv("OMP_NUM_THREADS", "1", 0);
    launcher_folders_set(c->folders);
    add_mark(c->mark);
    unsetenv(LAUNCHER_KEY); /* of another run, which has started this one */
    if (!c->listener) return;
    setenv(LAUNCHER_KEY, c->listener->key, 1);
    launcher_slurm_pass(LAUNCHER_KEY);
}

static void set_streams(const launcher_command *c) {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    if (c->out >= 0) dup2(c->out, STDOUT_FILENO);
    if (c->err >= 0) dup2(c->err, STDERR_FILENO);
}

/* A session of its own, so that Ctrl-C reaches dcp-run alone, which passes it on. */
void launcher_mpirun_exec(void *ctx) {
    const launcher_command *c = ctx;
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGINT); /* of the agent; mpirun then ends its ranks */
    set_streams(c);
    set_environment(c);
    /* It would end when it has found some output without a reader, and at a SIGTERM to all
     * processes of a service, before the ranks have saved. Ranks do not inherit this. */
    sigset_t mask = *c->mask;
    sigaddset(&mask, SIGPIPE);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    execvp(c->argv[0], c->argv);
    fprintf(stderr, "dcp-run: cannot run mpirun: %s; install openmpi-bin\n", strerror(errno));
    _exit(EXIT_CANNOT_EXEC);
}
