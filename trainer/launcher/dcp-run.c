/* dcp-run: starts ranks, watches them, starts them again; and its other lives: the agent on another
 * host, what mpirun starts that by, what becomes a rank's program, and the one who asks a running
 * dcp-run. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "launcher/agent/folders.h"
#include "launcher/agent/processes.h"
#include "launcher/agent/remote.h"
#include "launcher/control/control.h"
#include "launcher/control/ctl.h"
#include "launcher/rank_program.h"
#include "launcher/shell.h"
#include "launcher/slurm.h"
#include "launcher/supervisor.h"
#include "launcher/watched.h"
#include "programs/program.h"

/* Names the run, so that a rank that starts afresh after a restart knows the lines of metrics that
 * the start before it has written. */
static void name_run(void) {
    uint64_t number = 0;
    char text[17];
    if (getrandom(&number, sizeof number, 0) < 0) number = (uint64_t)getpid();
    snprintf(text, sizeof text, "%016" PRIx64, number);
    setenv("DCP_RUN_NAME", text, 1);
}

/* So that ranks draw a bar where a person looks on, and print lines where their output is kept. */
static void tell_terminal(const launcher_options *options) {
    struct winsize size;
    char text[16];
    const int is_seen = !options->logs && isatty(STDOUT_FILENO) &&
                        ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    snprintf(text, sizeof text, "%d", is_seen ? size.ws_col - 1 : 0);
    setenv("DCP_RUN_TERMINAL", text, 1);
}

/* A standard stream that is closed would be the next file that is opened, and get our messages. */
static void open_standard_streams(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* With all that it needs: the exit status. */
static int run_with(launcher_run *run, const launcher_watched *dirs) {
    const launcher_options *o = run->options;
    int status = launcher_cluster_open(&run->cluster, &o->cluster);
    if (status) return status;
    if (o->cluster.in_slurm) status = launcher_slurm_check();
    if (!status) status = launcher_family_find(&run->family);
    if (!status)
        status = launcher_control_open(&run->control, o->control, dirs->n ? dirs->at[0] : NULL);
    if (!status) {
        launcher_folders_sweep();
        launcher_budget_begin(&run->budget, dirs, o->max_restarts);
        name_run();
        tell_terminal(run->options);
        status = launcher_supervise(run);
        launcher_recovery_sum_up(&run->recovery);
        launcher_budget_end(&run->budget);
        launcher_control_close(run->control);
    }
    launcher_cluster_close(run->cluster);
    return status;
}

static int supervise(launcher_options *options) {
    launcher_run run = {.options = options};
    open_standard_streams();
    if (!launcher_processes_known())
        return program_fail(PROGRAM_FAILED,
                            "/proc shows other processes than ours: mount one for this PID "
                            "namespace, as unshare --mount-proc does");
    if (launcher_signals_open(&run.signals) != 0)
        return program_fail(PROGRAM_FAILED, "cannot watch signals: %s", strerror(errno));
    options->cluster.in_slurm = !options->cluster.hosts_file && getenv("SLURM_JOB_ID") != NULL;
    launcher_watched dirs;
    launcher_watched_find(&dirs, options->watch, options->program);
    options->cluster.evenly = dirs.has_redundancy;
    const int status = run_with(&run, &dirs);
    launcher_watched_free(&dirs);
    close(run.signals.fd);
    return status;
}

int main(int argc, char **argv) {
    program_survive_file_limit();
    if (argc > 1 && strcmp(argv[1], "agent") == 0) return launcher_remote_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "shell") == 0) return launcher_shell_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "start") == 0) return launcher_shell_start_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], LAUNCHER_RANK) == 0) return launcher_rank_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "ctl") == 0) return launcher_control_main(argc, argv);
    launcher_options options;
    int status = launcher_options_read(argc, argv, &options);
    if (status < 0) status = supervise(&options);
    launcher_options_free(&options);
    return status;
}
