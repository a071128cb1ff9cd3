/* CHECK for tests under mpirun: a failure ends all ranks immediately, so none waits for another. */
#ifndef TESTS_MPI_CHECK_H
#define TESTS_MPI_CHECK_H

#include <mpi.h>
#include <stdio.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition);                            \
    } while (0)

static inline void check_failed(const char *file, int line, const char *condition) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "%s:%d: rank %d: not true: %s\n", file, line, rank, condition);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#endif
