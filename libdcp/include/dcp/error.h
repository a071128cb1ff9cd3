/* Statuses, and the object that says what went wrong. */
#ifndef DCP_ERROR_H
#define DCP_ERROR_H

#include <stdint.h>

#if defined(__GNUC__)
#define DCP_API __attribute__((visibility("default")))
#define DCP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define DCP_API
#define DCP_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Named by what the caller does about it. */
#define DCP_STATUS_LIST(X)                                                                         \
    X(DCP_OK, 0, "success")                                                                        \
    X(DCP_ERR_ARG, -1, "invalid argument")              /* mend the call */                        \
    X(DCP_ERR_MISMATCH, -2, "ranks or states disagree") /* mend what the ranks pass */             \
    X(DCP_ERR_NOT_FOUND, -3, "not found")               /* no such step, tensor or file */         \
    X(DCP_ERR_CORRUPT, -4, "damaged checkpoint")        /* load an older step */                   \
    X(DCP_ERR_VERSION, -5, "unknown format version")    /* use a newer library */                  \
    X(DCP_ERR_NO_SPACE, -6, "no space left")            /* free space, save again */               \
    X(DCP_ERR_IO, -7, "input or output failed")         /* look at the disk, try again */          \
    X(DCP_ERR_COMM, -8, "communication failed")         /* end this rank */                        \
    X(DCP_ERR_NO_MEMORY, -9, "out of memory")                                                      \
    X(DCP_ERR_UNSUPPORTED, -10, "not supported")                                                   \
    X(DCP_ERR_STATE, -11, "wrong state for this call") /* a step that exists, a closed object */   \
    X(DCP_ERR_BUSY, -12, "locked by another writer")   /* wait for it, or choose another folder */ \
    X(DCP_ERR_DEVICE, -13, "device failed")            /* look at the GPU; end this rank */        \
    X(DCP_ERR_CANCELLED, -14, "cancelled")             /* somebody asked for it */

#define DCP_STATUS_ENUM(name, value, text) name = value,
typedef enum dcp_status { DCP_STATUS_LIST(DCP_STATUS_ENUM) } dcp_status;
#undef DCP_STATUS_ENUM

#define DCP_ERROR_RANKS 16

/* What went wrong, filled by a function that fails; untouched by one that succeeds. Every
 * `dcp_error *err` parameter may be NULL. It needs no initialization, and its size does not change.
 *
 * After a collective call all ranks have the same, from the first rank that failed. The members
 * after the message say what it says once more, for programs; those that do not apply, or are not
 * known, have the values in parentheses. */
typedef struct dcp_error {
    int status;         /* the status returned */
    int rank;           /* first rank that failed; -1: no rank by itself, or not collective */
    char message[1024]; /* one line: what, where (path, tensor, offset) and how to mend it */
    int system_error;   /* errno of the call to the system that failed (0) */
    int n_ranks;        /* how many ranks it is about, which may be more than ranks[] holds (0) */
    /* The first of them, ascending. DCP_ERR_COMM: those known to have ended, or to be late.
     * DCP_ERR_MISMATCH: those that differ from the lowest rank that was asked; those whose boxes
     * overlap. DCP_ERR_CANCELLED: the one that asked for it, while `rank` is the first that gave
     * up. DCP_ERR_CORRUPT: the one that loaded something else than the others. */
    int ranks[DCP_ERROR_RANKS];
    uint64_t offset; /* where in the file `path` bytes are damaged (a block's begin), or could not
                      * be read or written (UINT64_MAX) */
    char tensor[1024 + 8]; /* the path of a tensor, or of a box of it: "/model/a@1" ("") */
    char path[4096];       /* of the file or folder; a longer one lacks its end ("") */
    char reserved[256];    /* 0 */
} dcp_error;

/* The status' meaning in a few words, static storage. */
DCP_API const char *dcp_status_text(int status);

/* The library's version, "1.1.0". */
DCP_API const char *dcp_version(void);

/* Where messages go that are not failures: a fall-back taken, a step set aside. `line` has no
 * newline and is valid during the call. Called on rank 0 only, for a private store (dcp/store.h) on
 * the lowest rank of each node. */
typedef enum dcp_log_level { DCP_LOG_INFO, DCP_LOG_WARNING } dcp_log_level;
typedef void (*dcp_log_fn)(void *ctx, dcp_log_level level, const char *line);

#ifdef __cplusplus
}
#endif
#endif
