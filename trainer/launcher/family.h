/* The families of mpirun that dcp-run can use, and queries to other programs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "programs/program.h"

/* Runs a program. Fills in what it prints on stdout, cut to the size of `text`. Returns its exit
 * status; -1: it is missing, or did not end its answer within the limit. */
int launcher_ask_program(char *const *argv, double limit_s, char *text, size_t size);

/* Returns true if the program exists and can be executed, as execvp finds it. */
bool launcher_ask_finds(const char *program);

/* How each family is recognized, what its options are called, and which variables it gives to
 * ranks. One table holds all that differs between them. */

/* How to make a family start something other than its daemon on other hosts. */
typedef struct launcher_family_remote {
    const char *shell_variable; /* names ssh or a similar program */
    const char *asked;          /* a program that reports it as well; NULL: none */
    /* Either by parameters that follow `option`, each with a value: */
    const char *option;
    const char *program; /* the parameter that names the program to start, */
    const char *daemon;  /* the daemon that this program starts in turn, */
    const char *at_once; /* on how many hosts at a time, */
    const char *on[2];   /* parameters that are 1, */
    const char *shell;   /* the parameter that names the program to use as ssh. */
    /* Or by dcp-run in the place of ssh: the option that its path follows, and the variable that
     * has the words between the path and the host's name. */
    const char *starter, *starter_words;
} launcher_family_remote;

typedef struct launcher_family {
    const char *name;
    const char *banner; /* in the output of `mpirun --version`; the next number is the version */
    int from;           /* the least major version; the row above has the greater ones */
    /* Words of the command line, separated by spaces; NULL: not needed. */
    const char *always;
    const char *tag;       /* each line of output names its rank (logs.h) */
    const char *tag_end;   /* what is between that and the line */
    const char *one_host;  /* all ranks are on this host, however many they are */
    const char *host;      /* precedes NAME:SLOTS */
    const char *host_file; /* precedes the path of a file with one host per line */
    const char *slots;     /* what is between the name and the slots there */
    const char *pass;      /* precedes the name of a variable for the ranks */
    const char *pass_list; /* precedes all such names, with commas between them */
    const char *quiet;     /* a variable: 1 if mpirun is to print only what the ranks print */
    const program_launcher *told; /* the variables of the ranks */
    bool bare_signals; /* the status after a signal has killed a rank is the signal's bare number */
    bool hands_mask_on; /* ranks inherit mpirun's mask of blocked signals */
    const launcher_family_remote *remote;
} launcher_family;

/* Returns the family of the mpirun that prints `version`; NULL: none of them. */
const launcher_family *launcher_family_of(const char *version);

/* Queries the mpirun in PATH. Returns 0, or an exit status after a message. */
int launcher_family_find(const launcher_family **out);
