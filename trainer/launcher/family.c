#include "launcher/family.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/ask_program.h"
#include "programs/program.h"

static const double ask_limit_s = 30; /* programs may lie on a slow file system */

/* All agents are started by dcp-run's own host, at once, as they stay. */
static const launcher_family_remote by_orted = {
    .option = "--mca",
    .program = "orte_launch_agent",
    .daemon = "orted",
    .at_once = "plm_rsh_num_concurrent",
    .on = {"plm_rsh_no_tree_spawn", "orte_leave_session_attached"},
    .shell = "plm_rsh_agent",
    .shell_variable = "OMPI_MCA_plm_rsh_agent",
    .asked = "ompi_info",
};

static const launcher_family_remote by_prted = {
    .option = "--prtemca",
    .program = "prte_launch_agent",
    .daemon = "prted",
    .at_once = "plm_ssh_num_concurrent",
    .on = {"plm_ssh_no_tree_spawn", "prte_leave_session_attached"},
    .shell = "plm_ssh_agent",
    .shell_variable = "PRTE_MCA_plm_ssh_agent",
};

static const launcher_family_remote by_hydra = {
    .shell_variable = "HYDRA_LAUNCHER_EXEC",
    .starter = "-launcher rsh -launcher-exec",
    .starter_words = "HYDRA_LAUNCHER_EXTRA_ARGS",
};

static const launcher_family families[] = {
    {.name = "Open MPI 5",
     .banner = "(Open", /* MPI), or RTE) of the same programs by other names */
     .from = 5,
     .always = "--bind-to none",
     .tag = "--tag-output",
     .tag_end = " ",
     .one_host = "--oversubscribe",
     .host = "--host",
     .host_file = "--hostfile",
     .slots = " slots=",
     .pass = "-x",
     .quiet = "PRTE_MCA_prte_execute_quiet",
     .told = &program_launchers[PROGRAM_BY_OPEN_MPI],
     .remote = &by_prted},
    {.name = "Open MPI 4",
     .banner = "(Open",
     .from = 4,
     .always = "--bind-to none",
     .tag = "--tag-output",
     .tag_end = "",
     .one_host = "--oversubscribe",
     .host = "--host",
     .host_file = "--hostfile",
     .slots = " slots=",
     .pass = "-x",
     .quiet = "OMPI_MCA_orte_execute_quiet",
     .told = &program_launchers[PROGRAM_BY_OPEN_MPI],
     .remote = &by_orted},
    {.name = "MPICH",
     .banner = "HYDRA build details:",
     .from = 4,
     .always = "-bind-to none -rmk user", /* whatever batch system this is a job of */
     .tag = "-prepend-pattern [%g,%r]<stdout>:",
     .tag_end = "",
     .one_host = "-launcher fork",
     .host = "-hosts",
     .host_file = "-f",
     .slots = ":",
     .pass_list = "-genvlist",
     .told = &program_launchers[PROGRAM_BY_PMI],
     .bare_signals = 1,
     .hands_mask_on = 1,
     .remote = &by_hydra},
};

const launcher_family *launcher_family_of(const char *version) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *at = strstr(version, families[i].banner);
        if (at && atoi(at + strcspn(at, "0123456789")) >= families[i].from) return &families[i];
    }
    return NULL;
}

int launcher_family_find(const launcher_family **out) {
    char *const ask[] = {"mpirun", "--version", NULL};
    char text[4096];
    *out = NULL;
    if (!launcher_ask_finds(ask[0]))
        return program_fail(PROGRAM_FAILED, "there is no mpirun in PATH: install that of the MPI "
                                            "that the program is built with (Debian: openmpi-bin, "
                                            "or mpich)");
    const int status = launcher_ask(ask, ask_limit_s, text, sizeof text);
    if (status != 0)
        return program_fail(PROGRAM_FAILED, "'mpirun --version' fails (status %d)", status);
    *out = launcher_family_of(text);
    if (*out) return 0;
    text[strcspn(text, "\n")] = '\0';
    return program_refuse(
        "dcp-run knows the mpirun of Open MPI from version 4 on and of MPICH from "
        "version 4 on; the one in PATH says that it is: %s",
        text);
}
