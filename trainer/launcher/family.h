/* The families of mpirun that dcp-run can use, and queries to other programs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "programs/program.h"

/* Runs a program, and copies what it prints on stdout to `text`, cut to `size` bytes. Returns its
 * exit status; -1 if it is missing, was killed, or did not close its stdout within `limit_s`. */
int launcher_capture_output(char *const *argv, double limit_s, char *text, size_t size);

/* Returns true if execvp would find the program, and could execute it. */
bool launcher_program_exists(const char *program);

/* One table holds everything that differs between the families: how each is recognized, what its
 * options are called, and which variables it sets for ranks. */

/* How to make the mpirun of a family start an agent on other hosts in place of its daemon. */
typedef struct launcher_family_remote {
    const char *shell_variable; /* the environment variable that names ssh or a similar program */
    const char *shell_reporter; /* a program that also reports that name; NULL: none */
    /* One way is to set parameters, each by the words `option` NAME VALUE. The members after
     * `option` are NAMEs, and their comments say what the VALUE is: */
    const char *option;
    const char *program; /* the program to start */
    const char *daemon;  /* not a NAME: the daemon that this program starts in turn */
    const char *at_once; /* the number of hosts on which it is started at a time */
    const char *on[2];   /* 1 for each of these */
    const char *shell;   /* the program to use as ssh */
    /* The other way is to make mpirun start dcp-run in place of ssh. `starter` precedes dcp-run's
     * path on the command line. The variable `starter_words` holds the words between that path and
     * the host's name. */
    const char *starter, *starter_words;
} launcher_family_remote;

typedef struct launcher_family {
    const char *name;
    const char *banner; /* a part of the output of `mpirun --version`; the first number after it is
                           the version */
    int from;           /* the lowest major version; the first row that matches is used */
    /* Words of the command line, separated by spaces; NULL: not needed. */
    const char *always;
    const char *tag;      /* makes mpirun begin each line with a tag that names its rank (logs.h) */
    const char *tag_end;  /* the text between the tag and the line */
    const char *one_host; /* starts all ranks on this host, however many there are */
    const char *host;     /* precedes NAME:SLOTS */
    const char *host_file; /* precedes the path of a file with one host per line */
    const char *slots;     /* the text between a host's name and its slots in that file */
    const char *pass;      /* precedes the name of a variable to pass to the ranks */
    const char *pass_list; /* precedes all such names, with commas between them */
    const char *quiet;     /* a variable; 1 makes mpirun print only what the ranks print */
    const program_launcher *rank_variables; /* the variables that mpirun sets for the ranks */
    bool bare_signals;  /* if a signal kills a rank, mpirun's status is the signal's number */
    bool hands_mask_on; /* ranks inherit mpirun's mask of blocked signals */
    const launcher_family_remote *remote;
} launcher_family;

/* Returns the family of the mpirun that prints `version`; NULL: none of them. */
const launcher_family *launcher_family_of(const char *version);

/* Queries the mpirun in PATH. Returns 0, or an exit status after a message. */
int launcher_family_find(const launcher_family **out);
