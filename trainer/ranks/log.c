/* A line is a single write, so that lines of several processes are not mixed. */
#include "ranks/log.h"

#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "programs/fail.h"

/* Lines may come from the thread that saves. */
static atomic_int is_bar_drawn;

void ranks_bar_draw(const char *text) {
    printf("\r%s\033[K", text);
    fflush(stdout);
    is_bar_drawn = 1;
}

void ranks_bar_clear(void) {
    if (!atomic_exchange(&is_bar_drawn, 0)) return;
    fputs("\r\033[K", stdout);
    fflush(stdout);
}

void ranks_bar_finish(void) {
    if (!atomic_exchange(&is_bar_drawn, 0)) return;
    putchar('\n');
    fflush(stdout);
}

static void line(const char *prefix, const char *fmt, va_list args) {
    char *text;
    if (vasprintf(&text, fmt, args) < 0) text = NULL;
    ranks_bar_clear();
    fprintf(stderr, "dcp-train: %s%s\n", prefix, text ? text : fmt); /* NULL: out of memory */
    free(text);
}

void ranks_info(int rank, const char *fmt, ...) {
    if (rank != 0) return;
    va_list args;
    va_start(args, fmt);
    line("", fmt, args);
    va_end(args);
}

void ranks_warn(int rank, const char *fmt, ...) {
    if (rank != 0) return;
    va_list args;
    va_start(args, fmt);
    line("warning: ", fmt, args);
    va_end(args);
}

void ranks_log(void *ctx, dcp_log_level level, const char *text) {
    (void)ctx;
    if (level == DCP_LOG_WARNING)
        ranks_warn(0, "%s", text);
    else
        ranks_info(0, "%s", text);
}

/* comm_agree of libdcp does the same on a dcp_comm. This function uses MPI directly, because ranks
 * that wait in MPI also advance the gathers and reductions of training that are in flight. Unlike
 * comm_agree, this function does not name a rank if all ranks failed.
 *
 * It costs one all-reduce if nothing failed. */

int ranks_agree(MPI_Comm comm, int status, dcp_error *err) {
    int rank, world;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    /* [0]: the lowest rank that failed; [1]: -1 if some rank did not fail, otherwise 0 */
    int found[2] = {status ? rank : INT_MAX, status ? 0 : -1};
    MPI_Allreduce(MPI_IN_PLACE, found, 2, MPI_INT, MPI_MIN, comm);
    if (found[0] == INT_MAX) return DCP_OK;
    dcp_error first = *err;
    first.status = status;
    MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, found[0], comm);
    if (found[1] == 0)
        core_fail_again(err, first.status, &first, "%s", first.message);
    else
        core_fail_again(err, first.status, &first, "rank %d: %s", found[0], first.message);
    err->rank = found[0];
    return first.status;
}
