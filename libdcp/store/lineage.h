/* What the saves of a store say of the run that they belong to: where it has gone back. */
#pragma once

#include <stdint.h>

/* Saves of steps after `to` are past where their numbers are below `number`. */
typedef struct store_past {
    uint64_t to, number;
} store_past;

#define STORE_PASTS 16

typedef struct store_lineage {
    uint64_t id; /* of the run, or of those that went on in turn from each other's steps; 0: none */
    uint64_t last; /* of the saves that say so, the number of the latest */
    uint64_t n;
    store_past pasts[STORE_PASTS]; /* by number; of two none says all that the other one says */
} store_lineage;

/* Where there are too many, the oldest goes: the newer ones say the same of all steps but those
 * that the run was past long ago. */
void store_lineage_add(store_lineage *lineage, store_past past);

/* Adds what the other one says where it is of the same run; takes it over where it is of another
 * run, whose saves are later. */
void store_lineage_join(store_lineage *lineage, const store_lineage *other);

/* Whether it is known that steps after `past.to` with lower numbers are past. */
int store_lineage_has(const store_lineage *lineage, store_past past);

struct json_t;

/* What about.json of the save of that number says; it has no pasts and the id 0 where that says
 * nothing. */
void store_lineage_read(store_lineage *lineage, const struct json_t *about, uint64_t number);

/* Adds it to about.json. 0, or -1: memory is short. */
int store_lineage_describe(const store_lineage *lineage, struct json_t *about);
