/* What the saves of a store say of the run that they belong to: where it has gone back. */
#pragma once

#include <stdint.h>

/* Saves of steps after `to` are past where their numbers are below `number`. */
typedef struct store_past {
    uint64_t to, number;
} store_past;

#define STORE_PASTS 16

typedef struct store_lineage {
    uint64_t id; /* the same in all stores of a list and for all of their saves; 0: none yet */
    uint64_t n;
    store_past pasts[STORE_PASTS]; /* by number; of two none says all that the other one says */
} store_lineage;

/* Where there are too many, the oldest goes: the newer ones say the same of all steps but those
 * that the run was past long ago. */
void store_lineage_add(store_lineage *lineage, store_past past);
void store_lineage_add_all(store_lineage *lineage, const store_lineage *other);

/* Whether it is known that steps after `past.to` with lower numbers are past. */
int store_lineage_has(const store_lineage *lineage, store_past past);

int store_lineage_is_past(const store_lineage *lineage, uint64_t step, uint64_t number);

struct json_t;

/* Adds what about.json says. */
void store_lineage_read(store_lineage *lineage, const struct json_t *about);

/* Adds it to about.json. 0, or -1: memory is short. */
int store_lineage_describe(const store_lineage *lineage, struct json_t *about);
