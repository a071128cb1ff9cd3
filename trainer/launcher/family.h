/* The families of mpirun that dcp-run can use, and programs that are asked what they are. */
#pragma once

#include <stddef.h>

#include "programs/program.h"

/* Other programs that are asked something. */

/* What the program prints on stdout, cut to the size of `text`, and its exit status; -1: it is
 * missing, or has not ended its answer within the limit. */
int launcher_ask_program(char *const *argv, double limit_s, char *text, size_t size);

/* Whether there is such a program: in PATH, or where its path says. */
int launcher_ask_finds(const char *program);

/* The families of mpirun that dcp-run speaks to: how each is recognised, what its options are
 * called, and what it tells ranks. All that differs between them is in one table. */

/* How a family is made to start something else than its daemon on other hosts. */
typedef struct launcher_family_remote {
    const char *shell_variable; /* that names ssh or its like */
    const char *asked;          /* the program that tells what it is, too; NULL: there is none */
    /* Either by parameters that follow `option`, each with a value; */
    const char *option;
    const char *program; /* what is to be started, */
    const char *daemon;  /* and what that starts in its turn */
    const char *at_once; /* on how many hosts at a time */
    const char *on[2];   /* those that are 1 */
    const char *shell;   /* what is to be taken for ssh */
    /* or by dcp-run in the place of ssh: what its path follows, and the variable that has the words
     * between it and the host's name. */
    const char *starter, *starter_words;
} launcher_family_remote;

typedef struct launcher_family {
    const char *name;
    const char *banner; /* in the answer to `mpirun --version`; the next number is the version */
    int from;           /* major version, up to that of the row above */
    /* Words of the command line, separated by spaces; NULL: it needs none for that. */
    const char *always;
    const char *tag;              /* each line of output names its rank, as tagged.h says, */
    const char *tag_end;          /* with this between the two */
    const char *one_host;         /* all ranks on this host, however many they are */
    const char *host;             /* what NAME:SLOTS follows */
    const char *host_file;        /* what a file of hosts follows, one a line, */
    const char *slots;            /* with this between its name and its slots */
    const char *pass;             /* what the name of a variable for the ranks follows, */
    const char *pass_list;        /* or all names, with commas */
    const char *quiet;            /* a variable: 1 where it says no more than the ranks do */
    const program_launcher *told; /* what the ranks find in their environment */
    int bare_signals;  /* its status is the number alone of a signal that has killed a rank */
    int hands_mask_on; /* ranks have those signals blocked that are blocked for it */
    const launcher_family_remote *remote;
} launcher_family;

/* The family of the mpirun that says so of itself; NULL: none of them. */
const launcher_family *launcher_family_of(const char *version);

/* Asks the mpirun in PATH. 0, or an exit status after a message. */
int launcher_family_find(const launcher_family **out);
