/* Statuses, and the object that describes a failure. */
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

/* There is one status for each way in which a caller can react to a failure. */
#define DCP_STATUS_LIST(X)                                                                         \
    X(DCP_OK, 0, "success")                                                                        \
    X(DCP_ERR_ARG, -1, "invalid argument")              /* correct the call */                     \
    X(DCP_ERR_MISMATCH, -2, "ranks or states disagree") /* correct what the ranks pass */          \
    X(DCP_ERR_NOT_FOUND, -3, "not found")               /* no such step, tensor or file */         \
    X(DCP_ERR_CORRUPT, -4, "damaged checkpoint")        /* load an older step */                   \
    X(DCP_ERR_VERSION, -5, "unknown format version")    /* use a newer library */                  \
    X(DCP_ERR_NO_SPACE, -6, "no space left")            /* free space, save again */               \
    X(DCP_ERR_IO, -7, "input or output failed")         /* check the disk, try again */            \
    X(DCP_ERR_COMM, -8, "communication failed")         /* end this rank */                        \
    X(DCP_ERR_NO_MEMORY, -9, "out of memory")                                                      \
    X(DCP_ERR_UNSUPPORTED, -10, "not supported")                                                   \
    X(DCP_ERR_STATE, -11, "wrong state for this call") /* a step that exists, a closed object */   \
    X(DCP_ERR_BUSY, -12, "locked by another writer")   /* wait for it, or choose another folder */ \
    X(DCP_ERR_DEVICE, -13, "device failed")            /* check the GPU; end this rank */          \
    X(DCP_ERR_CANCELLED, -14, "cancelled")             /* a caller requested it */

#define DCP_STATUS_ENUM(name, value, text) name = value,
typedef enum dcp_status { DCP_STATUS_LIST(DCP_STATUS_ENUM) } dcp_status;
#undef DCP_STATUS_ENUM

#define DCP_ERROR_RANKS 16

/* Describes a failure. A function that fails fills it in; a function that succeeds leaves it
 * untouched. Every `dcp_error *err` parameter may be NULL. The struct needs no initialization, and
 * its size does not change.
 *
 * After a collective call all ranks have the same error, from the lowest rank that failed. The
 * members after `message` repeat its content for programs. A member that does not apply, or whose
 * value is unknown, has the value given in parentheses. */
typedef struct dcp_error {
    int status; /* the status returned */
    int rank;   /* lowest rank that failed; -1: no single rank, or the call is not collective */
    char message[1024]; /* one line: what failed, where (path, tensor, offset) and the remedy */
    int system_error;   /* errno of the system call that failed (0) */
    int n_ranks;        /* number of ranks concerned, which may be more than ranks[] holds (0) */
    /* The first of these ranks, ascending.
     * DCP_ERR_COMM: ranks known to have ended or to be late.
     * DCP_ERR_MISMATCH: ranks that differ from the lowest rank that was compared, or ranks whose
     * boxes overlap.
     * DCP_ERR_CANCELLED: the rank that requested it; `rank` names it as well.
     * DCP_ERR_CORRUPT: the rank that loaded something different from the others. */
    int ranks[DCP_ERROR_RANKS];
    uint64_t offset; /* in the file `path`: offset of the damaged bytes (start of the block), or of
                        bytes that could not be read or written (UINT64_MAX) */
    char tensor[1024 + 8]; /* tensor path, or the path of one of its boxes: "/model/a@1" ("") */
    char path[4096];       /* path of the file or folder, truncated at the end if longer ("") */
    char reserved[256];    /* 0 */
} dcp_error;

/* Returns the meaning of a status in a few words: a string in static storage. */
DCP_API const char *dcp_status_text(int status);

/* Returns the library's version, "1.1.0". */
DCP_API const char *dcp_version(void);

/* A log function receives messages that are not failures, such as a fallback or a step that was set
 * aside. `line` has no newline and is valid during the call. The function is called on rank 0 only;
 * for a private store (dcp/store.h), on the lowest rank of each node. */
typedef enum dcp_log_level { DCP_LOG_INFO, DCP_LOG_WARNING } dcp_log_level;
typedef void (*dcp_log_fn)(void *ctx, dcp_log_level level, const char *line);

#ifdef __cplusplus
}
#endif
#endif
