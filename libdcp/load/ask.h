/* Asking the homes of tensors for the datasets near this rank's boxes, with the same message that
 * asks who else holds them. */
#pragma once

#include "plan/boxes.h"

struct load_job;

/* Zeroed at first. */
typedef struct load_asking {
    struct load_job *job;
    plan_homes homes;
    size_t *numbers;
    uint64_t *bytes;
} load_asking;

/* Not collective: fills in `homes` for plan_exchange_least, in which the datasets become known and
 * the load's pieces are prepared; the first of its values is what load_pieces_measure says then. To
 * be freed in either case. */
int load_ask_prepare(load_asking *a, struct load_job *l, dcp_error *err);
void load_ask_free(load_asking *a);
