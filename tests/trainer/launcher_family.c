/* Which family an mpirun is of, by what real ones answer to `mpirun --version`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/family.h"

static const struct {
    const char *answer, *name; /* NULL: none that is known */
} answers[] = {
    {"mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
     "Open MPI 4"},
    {"mpirun (Open MPI) 5.0.7\n\nReport bugs to https://www.open-mpi.org/community/help/\n\n",
     "Open MPI 5"},
    {"mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n\n",
     "Open MPI 5"},
    {"mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
     "Open MPI 4"},
    {"HYDRA build details:\n"
     "    Version:                                 4.0.2\n"
     "    Release Date:                            Thu Apr  7 12:34:45 CDT 2022\n"
     "    CC:                              gcc -Wdate-time -D_FORTIFY_SOURCE=2 -g -O2\n"
     "    Launchers available:                     ssh rsh fork slurm ll lsf sge manual persist\n",
     "MPICH"},
    {"HYDRA build details:\n"
     "    Version:                                 4.2.1\n"
     "    Release Date:                            Wed Apr 17 15:30:02 CDT 2024\n",
     "MPICH"},
    {"HYDRA build details:\n"
     "    Version:                                 5.0.2\n"
     "    Release Date:                            Fri Sep 25 20:45:26 UTC 2026\n",
     "MPICH"},
    {"mpirun (Open MPI) 3.1.3\n\nReport bugs to http://www.open-mpi.org/community/help/\n", NULL},
    {"HYDRA build details:\n    Version:                                 3.3.2\n", NULL},
    {"Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)\n"
     "Copyright 2003-2023, Intel Corporation.\n",
     NULL},
    {"", NULL},
};

static void known_by_their_answers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const launcher_family *family = launcher_family_of(answers[i].answer);
        if (!answers[i].name)
            assert_null(family);
        else
            assert_string_equal(family ? family->name : "none", answers[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_by_their_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
