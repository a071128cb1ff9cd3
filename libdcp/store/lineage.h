/* What the saves of a store say of the run that they belong to: where it has gone back. */
#pragma once

#include <stdint.h>

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
