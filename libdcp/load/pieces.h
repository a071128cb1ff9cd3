/* The pieces that a load moves, how ranks learn which datasets hold them, and casts. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"
#include "plan/boxes.h"

/* Requests the datasets near this rank's boxes (those that can share elements with the boxes) from
 * the tensors' homes. The message in which a rank sends its boxes, to find out who else holds them,
 * is also the request. */

struct load_job;

/* Must be zeroed initially. */
typedef struct load_home_request {
    struct load_job *job;
    uint64_t *end;
    plan_homes homes;
    size_t *numbers;
    uint64_t *bytes;
} load_home_request;

/* Not collective. Fills in `homes` for plan_exchange_vote. During that call this rank receives the
 * datasets and calls load_pieces_begin, which sets *end. Free `a` even after a failure. */
int load_request_prepare(load_home_request *a, struct load_job *l, uint64_t *end, dcp_error *err);
void load_request_free(load_home_request *a);

/* Casts on load. If the state's elements are at least as large as the stored ones, the stored bytes
 * arrive at the end of the box's memory, are checked there, and are converted in place. If the
 * state's elements are smaller, or if any rank's boxes are on a device or have strides, elements
 * are summed and converted on the way into the box (move_cast). */

struct load_job;
struct load_casting;

/* Not collective. Fills l->cast from l->chosen. */
int load_cast_prepare(struct load_job *l, dcp_error *err);

/* Converts in place the elements that arrived in the stored type. */
void load_cast_in_place(const struct load_job *l);

void load_cast_free(struct load_casting *cast);

/* The pieces that a load moves. */

struct load_job;

/* Not collective. Called as soon as this rank can know the datasets near its boxes. Finds these
 * datasets, and allocates the checksums, the list of files and the queue. Sets *end to the number
 * of tensors, starting at the first, whose pieces this rank can have in one batch, and opens their
 * datasets. */
int load_pieces_begin(struct load_job *l, uint64_t *end, dcp_error *err);
void load_pieces_free(struct load_job *l);

/* Collective. Called after load_proofs_agree if proofs are due. Fills the boxes of all pieces and
 * adds to the checksums. Unless the rows are READER_ROWS_HERE, returns only this rank's own status,
 * on which the ranks have yet to agree. */
int load_pieces_move_all(struct load_job *l, dcp_error *err);
