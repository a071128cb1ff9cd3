/* What a save needs of a store: a folder to write into, and its publication. */
#ifndef DCP_STORE_STORE_H
#define DCP_STORE_STORE_H

#include "dcp/store.h"

#define STORE_PINS 8
#define STORE_MARKS 64 /* files written last */

/* A file that was written: see store/spare.h. */
typedef struct spare_mark {
    uint64_t step, pages, identity[4];
} spare_mark;

/* What another room keeps with a store; it begins with this. */
typedef struct store_attachment {
    void (*settle)(struct store_attachment *attachment); /* waits for the save in flight; or NULL */
    void (*free)(struct store_attachment *attachment);
} store_attachment;

struct dcp_store {
    dcp_comm *comm;                   /* borrowed */
    char *dir;                        /* this rank's, absolute; leaves room for a step's files */
    dcp_store_options options;        /* `tool` is a copy */
    int leader;                       /* the rank that works in this rank's directory; shared: 0 */
    int nodes;                        /* directories; shared: 1 */
    struct redundancy_groups *groups; /* of a private store; NULL: none */
    int dir_fd, lock_fd;              /* -1 on ranks that don't lead */
    uint64_t continue_from; /* steps after it are abandoned before the first publication */
    int abandon_pending;
    uint64_t newest_intact; /* the one loaded or saved last */
    int has_intact;
    uint64_t pins[STORE_PINS]; /* steps that `keep` leaves */
    size_t n_pins;
    spare_mark marks[STORE_MARKS]; /* in turn */
    size_t n_marks;                /* ever made */
    store_attachment *attachment;  /* of libdcp/save; NULL before the first save */
};

/* Whether this rank leads its node. */
int store_leads(const dcp_store *store);

/* Waits for the save in flight, if there is one. */
void store_settle(dcp_store *store);

/* Collective. Leaders make an empty `DIR/.tmp-step-N`; each rank gets its node's (PATH_MAX bytes).
 * DCP_ERR_STATE where step-N exists on all nodes, is not about to be abandoned, and options.replace
 * is 0. */
int store_begin(dcp_store *store, uint64_t step, char *tmp_path, dcp_error *err);

/* Collective. The files in the temporary folders are complete and durable; leaders add about.json
 * (the library's members: see about.h; `members_json`: an object with further ones, or NULL), make
 * the folder durable and set later steps aside where a run went back; when all have done so, they
 * rename; when all have done so, they repoint `latest` and apply `keep`. The step counts as intact
 * from then on. A failure to remove old steps is logged, not returned. */
int store_publish(dcp_store *store, uint64_t step, const char *members_json, dcp_error *err);

/* Not collective; leaders remove the temporary folder of a save that failed. Never fails. */
void store_rollback(dcp_store *store, uint64_t step);

/* Collective. dcp_store_rebuild of one step of a private store. DCP_ERR_NOT_FOUND: too many of its
 * files are lost, or no redundancy file is left; DCP_ERR_CORRUPT: the same, and some are damaged.
 */
int store_rebuild_step(dcp_store *store, uint64_t step, int every_byte, int *rebuilt,
                       dcp_error *err);

/* Collective: sets the steps after store->continue_from aside now, not at the next publication. */
int store_set_aside(dcp_store *store, dcp_error *err);

/* While a step is pinned, `keep` leaves it. Only while no save of the store is in flight. */
void store_pin(dcp_store *store, uint64_t step);
void store_unpin(dcp_store *store, uint64_t step);

#endif
