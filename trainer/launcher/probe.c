/* Probes hosts: checks whether they still answer. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/job.h"
#include "launcher/mpirun.h"
#include "programs/program.h"

enum { EXIT_NO_MPIRUN = 127 };

/* Sets the first of the folders as the place of mpirun's temporary files, on this host only. On
 * other hosts Open MPI's daemon would make the same folder, and nobody would remove it. */
static void use_folder(const launcher_folders *folders) {
    static const struct {
        const char *everywhere, *here, *there;
    } names[] = {{"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base",
                  "OMPI_MCA_orte_remote_tmpdir_base"},
                 {"PRTE_MCA_prte_tmpdir_base", "PRTE_MCA_prte_local_tmpdir_base",
                  "PRTE_MCA_prte_remote_tmpdir_base"}}; /* of Open MPI 4, and of 5 */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *everywhere = getenv(names[i].everywhere);
        if (everywhere) setenv(names[i].there, everywhere, 1);
        unsetenv(names[i].everywhere); /* mpirun accepts either this variable or the other two */
        setenv(names[i].here, folders->path[0], 1);
    }
}

static _Noreturn void try_host(const launcher_family *family, const char *host) {
    char one[512];
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    snprintf(one, sizeof one, "%s:1", host);
    setsid();
    for (int fd = 0; fd <= STDERR_FILENO; fd++) dup2(null, fd);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    launcher_slurm_set_environment();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execlp("mpirun", "mpirun", family->host, one, "-n", "1", "true", (char *)NULL);
    _exit(EXIT_NO_MPIRUN);
}

void launcher_probe_begin(launcher_probe *probe, double limit_s) {
    probe->end = program_now_s() + limit_s;
    if (probe->n == 0 || launcher_folders_make(&probe->folders) != 0) probe->n = 0;
    for (size_t i = 0; i < probe->n; i++)
        if ((probe->pids[i] = fork()) == 0) {
            use_folder(&probe->folders);
            try_host(probe->family, probe->hosts[i]);
        }
}

static bool finish_one(pid_t pid, double end) {
    int status = 0;
    if (pid < 0) return true; /* no process can be started here, so the host is not to blame */
    struct pollfd ended = {.fd = pidfd_open(pid, 0), .events = POLLIN};
    const double left = end - program_now_s();
    const bool in_time = poll(&ended, 1, left > 0 ? (int)(left * 1e3) : 0) == 1;
    if (!in_time) kill(-pid, SIGKILL);
    waitpid(pid, &status, 0);
    if (ended.fd >= 0) close(ended.fd);
    return in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void launcher_probe_finish(launcher_probe *probe) {
    for (size_t i = 0; i < probe->n; i++)
        probe->reached[i] = finish_one(probe->pids[i], probe->end);
    if (probe->n == 0) return;
    launcher_folders_remove(&probe->folders);
    launcher_folders_free(&probe->folders);
}
