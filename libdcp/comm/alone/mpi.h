/* MPI for one rank, for a build without MPI (DCP_MPI=OFF): the functions that the library and
 * dcp-train call. A collective only copies its input to its output, or does nothing. Such a build
 * runs only as one process. Requests are complete as soon as they begin; a message to another rank,
 * or MPI-IO, fails. Not installed. */
#ifndef DCP_COMM_ALONE_MPI_H
#define DCP_COMM_ALONE_MPI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int MPI_Comm;
typedef int MPI_Fint;
typedef int MPI_Op;
typedef int MPI_Request;
typedef int MPI_Info;
typedef int MPI_File;
typedef int MPI_Errhandler;
typedef size_t MPI_Datatype; /* bytes of an element */
typedef ptrdiff_t MPI_Aint;
typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;

enum { MPI_SUCCESS, MPI_ERR_OTHER = 16 };
enum { MPI_COMM_NULL, MPI_COMM_WORLD, MPI_COMM_SELF };
enum { MPI_OP_NULL, MPI_MAX, MPI_MIN, MPI_SUM, MPI_BOR, MPI_BXOR, MPI_MAXLOC };
enum { MPI_THREAD_SINGLE, MPI_THREAD_MULTIPLE = 3 };
enum { MPI_ANY_SOURCE = -1, MPI_ANY_TAG = -1 };
enum { MPI_INFO_NULL, MPI_ERRORS_RETURN = 0, MPI_REQUEST_NULL = 0 };
enum { MPI_COMM_TYPE_SHARED, MPI_MODE_RDWR = 8 };

#define MPI_FILE_NULL 0 /* without this macro, HDF5 includes mpio.h, which does not exist here */
#define MPI_BYTE ((MPI_Datatype)1)
#define MPI_CHAR ((MPI_Datatype)1)
#define MPI_INT sizeof(int)
#define MPI_UINT16_T sizeof(uint16_t)
#define MPI_UINT64_T sizeof(uint64_t)
#define MPI_FLOAT sizeof(float)
#define MPI_DOUBLE sizeof(double)
#define MPI_DOUBLE_INT                                                                             \
    sizeof(struct {                                                                                \
        double value;                                                                              \
        int at;                                                                                    \
    })
#define MPI_IN_PLACE ((void *)-1)
#define MPI_STATUS_IGNORE ((MPI_Status *)NULL)
#define MPI_STATUSES_IGNORE ((MPI_Status *)NULL)
#define DCP_ALONE static inline __attribute__((unused))

DCP_ALONE int alone_copy(const void *from, void *to, int n, MPI_Datatype type) {
    if (from != MPI_IN_PLACE && to != MPI_IN_PLACE && from != to && n > 0)
        memmove(to, from, (size_t)n * type);
    return MPI_SUCCESS;
}

/* Ends the process if a launcher started several processes, since each of them would act as the
 * only rank. */
DCP_ALONE int alone_start(void) {
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (int i = 0; i < 3; i++) {
        const char *size = getenv(sizes[i]);
        if (!size || strtol(size, NULL, 10) <= 1) continue;
        fprintf(stderr,
                "this build is without MPI: it runs as one process, not as %s ranks; start it "
                "without a launcher, or build with -DDCP_MPI=ON\n",
                size);
        exit(2);
    }
    return MPI_SUCCESS;
}

DCP_ALONE int MPI_Init(int *argc, char ***argv) {
    (void)argc, (void)argv;
    return alone_start();
}
DCP_ALONE int MPI_Init_thread(int *argc, char ***argv, int wanted, int *out) {
    (void)argc, (void)argv, *out = wanted;
    return alone_start();
}
DCP_ALONE int MPI_Query_thread(int *out) {
    *out = MPI_THREAD_MULTIPLE;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Initialized(int *out) {
    *out = 1;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Finalized(int *out) {
    *out = 0;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Finalize(void) { return MPI_SUCCESS; }
DCP_ALONE int MPI_Comm_rank(MPI_Comm c, int *out) {
    (void)c, *out = 0;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Comm_size(MPI_Comm c, int *out) {
    (void)c, *out = 1;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Comm_dup(MPI_Comm c, MPI_Comm *out) {
    *out = c;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Comm_idup(MPI_Comm c, MPI_Comm *out, MPI_Request *r) {
    *out = c, *r = 0;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Comm_split(MPI_Comm c, int color, int key, MPI_Comm *out) {
    (void)color, (void)key, *out = c;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Comm_split_type(MPI_Comm c, int type, int key, MPI_Info info, MPI_Comm *out) {
    (void)type, (void)key, (void)info, *out = c;
    return MPI_SUCCESS;
}
DCP_ALONE MPI_Comm MPI_Comm_f2c(MPI_Fint c) { return c; }
DCP_ALONE MPI_Fint MPI_Comm_c2f(MPI_Comm c) { return c; }
DCP_ALONE int MPI_Comm_free(MPI_Comm *c) {
    *c = MPI_COMM_NULL;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Comm_test_inter(MPI_Comm c, int *out) {
    (void)c, *out = 0;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Comm_set_errhandler(MPI_Comm c, MPI_Errhandler h) {
    (void)c, (void)h;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Barrier(MPI_Comm c) {
    (void)c;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Ibarrier(MPI_Comm c, MPI_Request *r) {
    (void)c, *r = 0;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Bcast(void *b, int n, MPI_Datatype t, int root, MPI_Comm c) {
    (void)b, (void)n, (void)t, (void)root, (void)c;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Ibcast(void *b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *r) {
    (void)b, (void)n, (void)t, (void)root, (void)c, *r = 0;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Wait(MPI_Request *r, MPI_Status *s) {
    (void)r, (void)s;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Waitall(int n, MPI_Request *r, MPI_Status *s) {
    (void)n, (void)r, (void)s;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Test(MPI_Request *r, int *done, MPI_Status *s) {
    (void)r, (void)s, *done = 1;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Testall(int n, MPI_Request *r, int *done, MPI_Status *s) {
    (void)n, (void)r, (void)s, *done = 1;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Request_get_status(MPI_Request r, int *done, MPI_Status *s) {
    (void)r, (void)s, *done = 1;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Cancel(MPI_Request *r) {
    (void)r;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Iprobe(int from, int tag, MPI_Comm c, int *found, MPI_Status *s) {
    (void)from, (void)tag, (void)c, (void)s, *found = 0;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Get_count(const MPI_Status *s, MPI_Datatype t, int *n) {
    (void)s, (void)t, *n = 0;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Type_contiguous(int n, MPI_Datatype t, MPI_Datatype *out) {
    *out = (size_t)n * t;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Type_create_resized(MPI_Datatype t, MPI_Aint low, MPI_Aint extent,
                                      MPI_Datatype *out) {
    (void)low, (void)extent, *out = t;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Type_commit(MPI_Datatype *t) {
    (void)t;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Type_free(MPI_Datatype *t) {
    (void)t;
    return MPI_SUCCESS;
}
DCP_ALONE int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype t, MPI_Op op,
                            MPI_Comm c) {
    (void)op, (void)c;
    return alone_copy(in, out, n, t);
}
DCP_ALONE int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype t, MPI_Op op,
                             MPI_Comm c, MPI_Request *r) {
    (void)op, (void)c, *r = 0;
    return alone_copy(in, out, n, t);
}
DCP_ALONE int MPI_Reduce(const void *in, void *out, int n, MPI_Datatype t, MPI_Op op, int root,
                         MPI_Comm c) {
    (void)op, (void)root, (void)c;
    return alone_copy(in, out, n, t);
}
DCP_ALONE int MPI_Ireduce_scatter(const void *in, void *out, const int *n, MPI_Datatype t,
                                  MPI_Op op, MPI_Comm c, MPI_Request *r) {
    (void)op, (void)c, *r = 0;
    return alone_copy(in, out, n[0], t);
}
DCP_ALONE int MPI_Gather(const void *in, int n, MPI_Datatype t, void *out, int m, MPI_Datatype u,
                         int root, MPI_Comm c) {
    (void)m, (void)u, (void)root, (void)c;
    return alone_copy(in, out, n, t);
}
DCP_ALONE int MPI_Igather(const void *in, int n, MPI_Datatype t, void *out, int m, MPI_Datatype u,
                          int root, MPI_Comm c, MPI_Request *r) {
    (void)m, (void)u, (void)root, (void)c, *r = 0;
    return alone_copy(in, out, n, t);
}
DCP_ALONE int MPI_Allgather(const void *in, int n, MPI_Datatype t, void *out, int m, MPI_Datatype u,
                            MPI_Comm c) {
    (void)m, (void)u, (void)c;
    return alone_copy(in, out, n, t);
}
DCP_ALONE int MPI_Iallgather(const void *in, int n, MPI_Datatype t, void *out, int m,
                             MPI_Datatype u, MPI_Comm c, MPI_Request *r) {
    (void)m, (void)u, (void)c, *r = 0;
    return alone_copy(in, out, n, t);
}
DCP_ALONE int MPI_Iallgatherv(const void *in, int n, MPI_Datatype t, void *out, const int *m,
                              const int *at, MPI_Datatype u, MPI_Comm c, MPI_Request *r) {
    (void)m, (void)c, *r = 0;
    return alone_copy(in, out == MPI_IN_PLACE ? out : (char *)out + (size_t)at[0] * u, n, t);
}
DCP_ALONE int MPI_Ialltoallv(const void *in, const int *n, const int *from, MPI_Datatype t,
                             void *out, const int *m, const int *at, MPI_Datatype u, MPI_Comm c,
                             MPI_Request *r) {
    (void)m, (void)c, *r = 0;
    return alone_copy(in == MPI_IN_PLACE ? in : (const char *)in + (size_t)from[0] * t,
                      (char *)out + (size_t)at[0] * u, n[0], t);
}
/* With one rank, there is no other rank to send to or to receive from. */
DCP_ALONE int MPI_Send(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c) {
    (void)b, (void)n, (void)t, (void)to, (void)tag, (void)c;
    return MPI_ERR_OTHER;
}
DCP_ALONE int MPI_Recv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c,
                       MPI_Status *s) {
    (void)b, (void)n, (void)t, (void)from, (void)tag, (void)c, (void)s;
    return MPI_ERR_OTHER;
}
DCP_ALONE int MPI_Isend(const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c,
                        MPI_Request *r) {
    *r = 0;
    return MPI_Send(b, n, t, to, tag, c);
}
DCP_ALONE int MPI_Irecv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c,
                        MPI_Request *r) {
    *r = 0;
    return MPI_Recv(b, n, t, from, tag, c, NULL);
}
DCP_ALONE int MPI_File_open(MPI_Comm c, const char *path, int mode, MPI_Info info, MPI_File *out) {
    (void)c, (void)path, (void)mode, (void)info, *out = MPI_FILE_NULL;
    return MPI_ERR_OTHER;
}
DCP_ALONE int MPI_File_close(MPI_File *f) {
    *f = MPI_FILE_NULL;
    return MPI_ERR_OTHER;
}
DCP_ALONE int MPI_Abort(MPI_Comm c, int status) {
    (void)c;
    _Exit(status);
}
DCP_ALONE double MPI_Wtime(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
