/* Statuses, and the object that says what went wrong. */
#ifndef DCP_ERROR_H
#define DCP_ERROR_H

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
    X(DCP_ERR_DEVICE, -13, "device failed")            /* look at the GPU; end this rank */

#define DCP_STATUS_ENUM(name, value, text) name = value,
typedef enum dcp_status { DCP_STATUS_LIST(DCP_STATUS_ENUM) } dcp_status;
#undef DCP_STATUS_ENUM

/* What went wrong, filled by a function that fails; untouched by one that succeeds. Every
 * `dcp_error *err` parameter may be NULL. */
typedef struct dcp_error {
    int status;         /* the status returned */
    int rank;           /* first rank that failed; -1: no rank by itself, or not collective */
    char message[1024]; /* one line: what, where (path, tensor, offset) and how to mend it */
} dcp_error;

/* The status' meaning in a few words, static storage. */
DCP_API const char *dcp_status_text(int status);

/* The library's version, "0.1.0". */
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
