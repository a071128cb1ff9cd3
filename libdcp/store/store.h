/* An open store, and the run that it belongs to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "dcp/store.h"
#include "store/lock.h"

/* The lineage of a run: what the saves of a store record about their run, mainly to which steps the
 * run has gone back. A node or a store that was absent while its run continued compares its own
 * steps with the lineage of the latest save, and so finds out which of them no longer belong to the
 * run. Terms:
 *
 * - A run goes back to a step if it continues from that step although it has saved later ones.
 * - Each save has a number. A later save has a higher number (store/returned.c).
 * - A save is past if it was superseded because the run went back: it was made before the run went
 *   back, and its step is later than the step to which the run went back. Then the step of the save
 *   is called past, too.
 * - A store_rewind R implies another one, P, if all saves that are past because of P are also past
 *   because of R.
 * - A branch consists of saves that only some stores of a list got, while the others were absent,
 *   and from which the run did not continue. These saves have the run's id. */

/* A point at which the run went back to step `to`. `number` is the number of the first save after
 * this point. So the saves of steps after `to` are past if their numbers are below `number`. */
typedef struct store_rewind {
    uint64_t to, number;
} store_rewind;

#define STORE_MAX_REWINDS 64

typedef struct store_lineage {
    uint64_t id;   /* identifies the run, which keeps it when it goes back; 0: none */
    uint64_t last; /* number of the latest save that records the lineage */
    uint64_t n;
    store_rewind rewinds[STORE_MAX_REWINDS]; /* ascending by number; none of them implies another */
} store_lineage;

/* Adds `past` to the lineage, unless its number is 0 or the lineage implies it. Removes the
 * elements that `past` implies. If there are then too many, drops the one with the lowest number:
 * the remaining elements imply the dropped one, except for the steps after its `to` up to the `to`
 * of the next element. The run had saved those steps again before it went back to the `to` of the
 * next element. */
void store_lineage_add(store_lineage *lineage, store_rewind past);

/* Replaces the lineage with `other` if a later save recorded `other`. The writer of the later save
 * knew what all stores that were present had recorded until then. So anything else that an absent
 * store has recorded concerns a branch. */
void store_lineage_update(store_lineage *lineage, const store_lineage *other);

/* Returns the point at which `branch` left the run that `lineage` describes: the first store_rewind
 * of `branch` that `lineage` does not imply. The saves of the branch after this point do not belong
 * to the run: these are the saves of steps after the returned `to` whose numbers are not below the
 * returned `number`. If the branch did not leave the run, the returned number is 0. */
store_rewind store_lineage_divergence(const store_lineage *lineage, const store_lineage *branch);

/* Returns true if the lineage implies `past`. */
bool store_lineage_has(const store_lineage *lineage, store_rewind past);

struct json_t;

/* Reads the lineage from `about`, the about.json of the save with number `number`. If about.json
 * has no lineage, n and id are 0. */
void store_lineage_read(store_lineage *lineage, const struct json_t *about, uint64_t number);

/* Adds the lineage to about.json. Returns 0, or -1 if memory is short. */
int store_lineage_describe(const store_lineage *lineage, struct json_t *about);

/* An open store: the struct that all files of this folder share. Only leaders access the
 * directory. */

#define STORE_WRITTEN 64 /* how many of the most recently written files are recorded */

/* A file that was written and may be recycled: see store/retention.h. */
typedef struct store_written {
    uint64_t step, pages, identity[4];
} store_written;

/* The first member of the struct in which libdcp/save keeps its data for a store. */
typedef struct store_attachment {
    void (*wait)(struct store_attachment *attachment); /* waits for the save in flight; or NULL */
    void (*free)(struct store_attachment *attachment);
} store_attachment;

/* What a leader finds when a save begins (store_begin); after the vote, the result for all
 * leaders. */
typedef struct store_found {
    bool exists;          /* the step exists, and is not about to be set aside */
    bool is_absent;       /* no entry has the step's name */
    bool sets_none_aside; /* no steps are to be set aside */
    bool has_same_newest; /* after the vote: all leaders have the same newest step */
    uint64_t newest;      /* one more than the newest step that is not to be set aside, or 0 */
    uint64_t intact;      /* one more than the step that was marked as intact or saved last, or 0 */
} store_found;

struct dcp_store {
    dcp_comm *comm;            /* borrowed */
    char *dir;                 /* the directory's absolute path on this rank (PATH_MAX bytes) */
    dcp_store_options options; /* `tool` and `domain` are copies */
    int leader;                /* the leader of this rank's node; 0 in a shared store */
    int nodes;                 /* number of directories; 1 in a shared store */
    int hosts;                 /* number of hosts on which the ranks run */
    char *host_names;          /* see store/domains.h */
    uint64_t domain; /* for a private store: the lowest rank of this rank's failure domain */
    int domains;     /* number of failure domains */
    struct redundancy_groups *groups; /* for a private store; NULL: none */
    int dir_fd;                       /* -1 on ranks that don't lead */
    struct store_lock *lock;          /* NULL on ranks that don't lead */
    pid_t process;                    /* the process that opened the store */
    char writer[STORE_WRITER_ID];     /* the identity of this open store, on all ranks */
    uint64_t save_number;             /* number of the next save: see store/returned.c */
    store_lineage lineage;            /* what the saves so far record; valid on leaders */
    bool is_contested;                /* see store/lock.h */
    uint64_t continue_from;           /* later steps are abandoned before the first publication */
    uint64_t back_number; /* if the run went back after the last save: save_number at that time;
                             else 0 */
    bool abandon_pending;
    uint64_t newest_intact; /* the step that was marked as intact or saved last */
    bool has_intact;
    uint64_t unread; /* a step that a save may replace: see store_allow_replacement */
    bool has_unread;
    store_found found; /* about the current save */
    bool has_tmp;      /* the leader has created the save's temporary folder */
    bool clears_way; /* some node may have a step with the save's name, or steps to set aside; equal
                       on all ranks */
    bool has_trash;  /* readers held removed steps: see store_remove_released */
    struct store_pins *pins;            /* steps that `keep` does not remove: see store_pin */
    store_written marks[STORE_WRITTEN]; /* used in turn */
    size_t n_marks;                     /* number of marks made since the store was opened */
    bool logged_striping;               /* it was logged that Lustre refused a layout */
    store_attachment *attachment;       /* of libdcp/save; NULL before the first save */
};

/* Returns true if this rank leads its node. */
bool store_leads(const dcp_store *store);

/* Returns true if this process opened the store. A process that was forked from that process takes
 * no part in the store's saves. */
bool store_is_own(const dcp_store *store);
/* Returns DCP_ERR_STATE in a process that did not open the store. Not collective. */
int store_check_own(const dcp_store *store, dcp_error *err);

/* Waits for the save in flight, if there is one. */
void store_wait_for_save(dcp_store *store);

/* Fails like core_fail_errno, with the path of the entry `name`. */
int store_fail_errno(const dcp_store *store, const char *what, const char *name, dcp_error *err);

/* Fails like core_fail_path, with the path of the entry `name`. */
int store_fail_entry(const dcp_store *store, const char *name, int status, dcp_error *err);

/* Fails because the entry `name` is a folder with somebody else's files (format/folder.h). */
int store_fail_foreign(const dcp_store *store, const char *name, dcp_error *err);

/* Sets *is_there to whether the store's directory has the entry `name`. Fails if that can't be
 * determined. */
int store_has(const dcp_store *store, const char *name, bool *is_there, dcp_error *err);

/* Makes the entries of the store's directory durable. */
int store_sync(const dcp_store *store, dcp_error *err);

void store_log(const dcp_store *store, dcp_log_level level, const char *fmt, ...) DCP_PRINTF(3, 4);

/* Rebuilding the lost files of a step of a private store from its redundancy files. */

/* Collective. Does for one step of a private store what dcp_store_rebuild does. DCP_ERR_NOT_FOUND:
 * too many of its files are lost, or no redundancy file is left. DCP_ERR_CORRUPT: as for
 * DCP_ERR_NOT_FOUND, and some files are damaged. */
int store_restore_step(dcp_store *store, uint64_t step, int every_byte, int *rebuilt,
                       dcp_error *err);

/* Collective. Gives nodes of a private store an about.json like that of another node, if a rebuild
 * could not write it or was killed. A failure to write it is only logged, since the step loads
 * without it. The step must have redundancy files in the node's folder.
 *
 *   knows  this node's about.json is intact and of the save to which the step belongs
 *   lacks  this node has the step's folder, whose about.json is missing or damaged */
int store_restore_about(dcp_store *store, uint64_t step, bool knows, bool lacks, dcp_error *err);
