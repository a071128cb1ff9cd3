/* An open store, and the run that it belongs to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "dcp/store.h"
#include "store/lock.h"

/* What the saves of a store say of the run that they belong to: where it has gone back. */

/* Saves of steps after `to` are past where their numbers are below `number`. */
typedef struct store_past {
    uint64_t to, number;
} store_past;

#define STORE_PASTS 64

typedef struct store_lineage {
    uint64_t id; /* of the run, or of those that went on in turn from each other's steps; 0: none */
    uint64_t last; /* of the saves that say so, the number of the latest */
    uint64_t n;
    store_past pasts[STORE_PASTS]; /* by number; of two none says all that the other one says */
} store_lineage;

/* Where there are too many, the oldest goes: the newer ones say the same of all steps but of those
 * that the run had passed again by then. */
void store_lineage_add(store_lineage *lineage, store_past past);

/* Takes over the other one where that is of a later save: who saved it knew what the stores that
 * were there had said. What others say besides is of a branch that the run has left. */
void store_lineage_follow(store_lineage *lineage, const store_lineage *other);

/* Where `branch` parts from `lineage`: its first going back that this one knows nothing of. Saves
 * of later steps with that number or a higher one are not the run's. Number 0: it doesn't. */
store_past store_lineage_parting(const store_lineage *lineage, const store_lineage *branch);

/* Whether it is known that steps after `past.to` with lower numbers are past. */
int store_lineage_has(const store_lineage *lineage, store_past past);

struct json_t;

/* What about.json of the save of that number says; it has no pasts and the id 0 where that says
 * nothing. */
void store_lineage_read(store_lineage *lineage, const struct json_t *about, uint64_t number);

/* Adds it to about.json. 0, or -1: memory is short. */
int store_lineage_describe(const store_lineage *lineage, struct json_t *about);

/* An open store: what its parts share. Only a leader touches its directory. */

#define STORE_WRITTEN 64 /* files written last */

/* A file that was written: see store/retention.h. */
typedef struct store_written {
    uint64_t step, pages, identity[4];
} store_written;

/* What libdcp/save keeps with a store: a struct that begins with this one. */
typedef struct store_attachment {
    void (*settle)(struct store_attachment *attachment); /* waits for the save in flight; or NULL */
    void (*free)(struct store_attachment *attachment);
} store_attachment;

/* What a leader finds when a save begins (store_begin), and then what is true of all leaders. */
typedef struct store_found {
    bool stands;          /* the step exists, and is not about to be set aside */
    bool is_absent;       /* nothing has its name */
    bool stays;           /* no rank has steps to set aside */
    bool has_same_newest; /* after the vote: all leaders have the same newest step */
    uint64_t newest;      /* one more than the newest step that counts, or 0 */
} store_found;

struct dcp_store {
    dcp_comm *comm;            /* borrowed */
    char *dir;                 /* this rank's, absolute; leaves room for a step's files */
    dcp_store_options options; /* `tool` and `domain` are copies */
    int leader;                /* the rank that works in this rank's directory; shared: 0 */
    int nodes;                 /* directories; shared: 1 */
    int hosts;                 /* of the ranks */
    char *host_names;          /* see store/domains.h */
    uint64_t domain; /* of a private store: the lowest rank of this rank's failure domain */
    int domains;     /* how many of these there are */
    struct redundancy_groups *groups; /* of a private store; NULL: none */
    int dir_fd;                       /* -1 on ranks that don't lead */
    struct store_lock *lock;          /* NULL on these */
    pid_t process;                    /* that opened it */
    char writer[STORE_WRITER_ID];     /* the identity of this open store, on all ranks */
    uint64_t save_number;             /* of the next save: see store/returned.c */
    store_lineage lineage;            /* what the saves so far say, on ranks that lead */
    int is_contested;                 /* see store/lock.h */
    uint64_t continue_from; /* steps after it are abandoned before the first publication */
    uint64_t back_number; /* save_number when the run said so; 0: it has not since the last save */
    int abandon_pending;
    uint64_t newest_intact; /* the one loaded or saved last */
    int has_intact;
    uint64_t unread; /* a step that a save may replace: see store_allow_replacement */
    int has_unread;
    store_found found; /* of the save under way */
    int has_tmp;       /* a leader has made its temporary folder */
    int clears_way; /* some node may have a step of the name or later ones to set aside: the same on
                     * all ranks */
    int has_trash;  /* removed steps that readers held: see store_sweep */
    struct store_pins *pins;            /* steps that `keep` leaves: see store_pin */
    store_written marks[STORE_WRITTEN]; /* in turn */
    size_t n_marks;                     /* ever made */
    int told_of_striping;               /* that Lustre refused a layout */
    store_attachment *attachment;       /* of libdcp/save; NULL before the first save */
};

/* Whether this rank leads its node. */
int store_leads(const dcp_store *store);

/* Whether this process opened the store. A process that was forked since has no part in its
 * saves. */
int store_is_own(const dcp_store *store);
/* Returns DCP_ERR_STATE in such a process. Not collective. */
int store_check_own(const dcp_store *store, dcp_error *err);

/* Waits for the save in flight, if there is one. */
void store_settle(dcp_store *store);

/* core_fail_errno with the path of the entry `name`. */
int store_fail_errno(const dcp_store *store, const char *what, const char *name, dcp_error *err);

/* core_fail_path with it. */
int store_fail_entry(const dcp_store *store, const char *name, int status, dcp_error *err);

/* Whether the store's directory has an entry `name`; fails where that can't be found out. */
int store_has(const dcp_store *store, const char *name, int *is_there, dcp_error *err);

/* Makes the entries of the store's directory durable. */
int store_sync(const dcp_store *store, dcp_error *err);

void store_log(const dcp_store *store, dcp_log_level level, const char *fmt, ...) DCP_PRINTF(3, 4);

/* Rebuilding the lost files of a step of a private store from its redundancy files. */

/* Collective. dcp_store_rebuild of one step of a private store. DCP_ERR_NOT_FOUND: too many of its
 * files are lost, or no redundancy file is left; DCP_ERR_CORRUPT: the same, and some are damaged.
 */
int store_restore_step(dcp_store *store, uint64_t step, int every_byte, int *rebuilt,
                       dcp_error *err);
