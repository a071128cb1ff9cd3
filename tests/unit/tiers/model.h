/* A model in memory of a list of stores as dcp/tiers.h describes it: which steps each store holds,
 * and what the list does next. It is plain data, so that processes can share and copy it. */
#pragma once

#include <stdint.h>

enum { MODEL_TIERS = 3, MODEL_STEPS = 40, MODEL_VALUES = 4, MODEL_ANY = 0xffff };

typedef enum model_redundancy { MODEL_NONE, MODEL_PARTNER, MODEL_RS1, MODEL_RS2 } model_redundancy;

/* What is stored of a step. */
typedef struct model_copy {
    enum { MODEL_ABSENT, MODEL_MAYBE, MODEL_THERE } is;
    unsigned value; /* of the memory that was saved; MODEL_ANY: one of several */
    unsigned lost;  /* a bit for each node that has nothing of it */
    unsigned bad;   /* a bit for each node whose file is damaged */
} model_copy;

typedef struct model_tier {
    unsigned every, keep;
    int is_private, is_sharded;
    model_redundancy redundancy;
    model_copy copies[MODEL_STEPS + 1];
    int gone; /* its directories were removed while it was open */
    /* what the list remembers */
    int asked, failed, waiting, has_missed, is_made_good, has_step;
    unsigned step, missed, made_good;
    /* a filling that may be in progress, or has ended, which the list notes later */
    int filled, has_ended, has_failed;
    unsigned fill_step, fill_value, fill_from;
} model_tier;

typedef struct model {
    int ranks, tiers;
    model_tier t[MODEL_TIERS];
    int goes_back, flies;
    unsigned back_to, flight_tier, flight_step, flight_value;
} model;

/* Everything that may be on the disk while something happens, and what certainly is. */
typedef struct model_bounds {
    uint16_t values[MODEL_TIERS][MODEL_STEPS + 1][MODEL_VALUES]; /* any of these; 0: no more */
    uint8_t stays[MODEL_TIERS][MODEL_STEPS + 1];
} model_bounds;

/* All later calls also widen these bounds; NULL: none. */
void model_begin_bounds(const model *m, model_bounds *bounds);
void model_end_bounds(void);

int model_is_due(const model *m, int i, unsigned step);
int model_has(const model *m, int i, unsigned step);
/* Whether a load gets the copy, and whether it needs no rebuild for it. */
int model_is_whole(const model_copy *c);
int model_can_be_rebuilt(const model *m, int i, const model_copy *c);

/* The calls. value: what the memory holds. They return 1 if the call, or what it waits for,
 * fails. */
int model_wait(model *m);
int model_save_async(model *m, unsigned step, unsigned value);
int model_save(model *m, unsigned step, unsigned value, int also_last);
/* The newest step that can be loaded; 0 if there is none. *tier: its store. No filling is in
 * progress. */
unsigned model_load(model *m, unsigned *tier, unsigned *value);
void model_continue_from(model *m, unsigned step);
void model_mark(model *m, int i, unsigned step);

/* All fillings have ended, and the list has noted that. */
void model_settle(model *m);
/* All fillings have ended, but the list has noted nothing. */
void model_end_fillings(model *m);
/* The directories of the store, or of one node (-1: of all), are gone. `open`: while it is open. */
void model_lose(model *m, int i, int node, int open);
/* The list is closed, or its ranks are killed. */
void model_close(model *m);
void model_free_described(model *m);
