/* The pieces that a load moves, how ranks learn which datasets hold them, and casts. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"
#include "plan/boxes.h"

/* Requests the datasets near this rank's boxes from the tensors' homes, in the same message that
 * finds out who else holds these boxes. */

struct load_job;

/* Zeroed at first. */
typedef struct load_asking {
    struct load_job *job;
    uint64_t *end;
    plan_homes homes;
    size_t *numbers;
    uint64_t *bytes;
} load_asking;

/* Not collective: fills in `homes` for plan_exchange_vote, in which the datasets become known and
 * the load's pieces are begun (load_pieces_begin, into *end). To be freed in either case. */
int load_ask_prepare(load_asking *a, struct load_job *l, uint64_t *end, dcp_error *err);
void load_ask_free(load_asking *a);

/* Casts on load. If the state's elements are at least as large as the stored ones, the stored bytes
 * arrive at the end of the box's memory, are checked there, and are converted in place. If they are
 * smaller, or if any rank's boxes are on a device or have strides, elements are summed and
 * converted on the way into the box (move_cast). */

struct load_job;
struct load_casting;

/* Not collective. Fills l->cast from l->chosen. */
int load_cast_prepare(struct load_job *l, dcp_error *err);

/* Converts in place what arrived as it was stored. */
void load_cast_in_place(const struct load_job *l);

void load_cast_free(struct load_casting *cast);

/* The pieces that a load moves. */

struct load_job;

/* Not collective, once this rank can know the datasets near its boxes: finds them, and allocates
 * checksums, files and queue. *end: the number of tensors whose pieces this rank can have at once;
 * their datasets are open then. */
int load_pieces_begin(struct load_job *l, uint64_t *end, dcp_error *err);
void load_pieces_free(struct load_job *l);

/* Collective, after load_proofs_agree if that is due. Fills the boxes of all pieces and adds to the
 * checksums. If not all rows are here, returns this rank's status, which the ranks have yet to
 * agree on. */
int load_pieces_move_all(struct load_job *l, dcp_error *err);
