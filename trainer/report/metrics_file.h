/* The file of metrics: whose lines are in it, and who writes it. Each line has its run's name, so a
 * run goes on with its own lines alone. While a run writes the file it holds a lock on it. What
 * another run wrote is moved to a file of its own, FILE.old.1, FILE.old.2 and so on, of which none
 * is ever written over. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <dcp/error.h>

/* The run that opens a file. */
typedef struct report_file_run {
    const char *name;   /* 16 hexadecimal digits */
    const char *before; /* that of the run whose step it goes on from; "": not known */
    uint64_t step;      /* that step; 0: it starts afresh */
} report_file_run;

/* How a line begins, and the member that names its run. */
#define REPORT_LINE_START "{\"step\": "
#define REPORT_LINE_RUN "\"run\": \""

/* DCP_ERR_ARG: a file of that name is there, and no metrics file. */
int report_file_check(const char *path, dcp_error *err);

/* Opens the file to add lines with write(2), making it where it is missing, and holds its lock
 * until it is closed. *kept: the bytes of it that stay when the first line is added; what follows
 * them is of later steps, or a kill cut it, and is the newest there is until then. -1: all. Where
 * other lines are there they are moved aside, and the new file begins with the run's lines up to
 * its step as far as they are in one of the files that were moved; all of that is told. No other
 * stream on the file may be closed meanwhile: that would end the lock. DCP_ERR_BUSY: another
 * process writes it, which is named. DCP_ERR_ARG: the file is no metrics file, or cannot be opened.
 * DCP_ERR_IO: it cannot be read, and stays as it is. */
int report_file_open(const char *path, const report_file_run *run, FILE **out, off_t *kept,
                     dcp_error *err);

/* A failed call on the file, by errno: DCP_ERR_ARG where another path would help, else DCP_ERR_IO.
 */
int report_file_fail(const char *path, const char *what, dcp_error *err);
