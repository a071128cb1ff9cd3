/* The given state of the save and load tests: every dtype, scalars, empty and uneven tensors, one
 * to eight dimensions, small ones, several blocks, long rows that do not begin on a page; and the
 * ways in which ranks hold it. */
#ifndef TESTS_MPI_GIVEN_H
#define TESTS_MPI_GIVEN_H

#include "dcp/dcp.h"

#define GIVEN_TENSORS 96
#define GIVEN_JSON "{\"tokens\":12,\"lr\":0.1}"

typedef struct given {
    dcp_tensor tensors[GIVEN_TENSORS];
    char paths[GIVEN_TENSORS][40];
    unsigned char *data[GIVEN_TENSORS]; /* each whole */
} given;

/* Fills it. Salt 0 gives the given state, another salt other content. */
void given_make(given *g, uint64_t salt);
/* Does the same, but makes data only for the tensors that FEW_ROWS and FEW_COLUMNS hold. */
void given_make_few(given *g, uint64_t salt);
void given_free(given *g);
/* The tensor of that name. */
const dcp_tensor *given_find(const given *g, const char *path);

typedef enum scheme {
    ROWS,    /* dcp_box_chunk: some ranks have no rows if there are more ranks than rows */
    COLUMNS, /* cut on the last dimension */
    BLOCKS,  /* on the first two */
    COPIES,  /* all of it on every rank */
    PAIRS,   /* rows over one half of the ranks, repeated on the other half */
    OWNERS,  /* whole tensors, each on one rank */
    STRIPES, /* every size-th row: many boxes of a tensor on each rank */
    MESH,    /* replicas x FSDP x tensor parallel: two dimensions cut, or one cut twice */
    SAVE_SCHEMES,
    HALO = SAVE_SCHEMES, /* like ROWS, plus one of each neighbour; from here only for loads */
    CORNERS,             /* an odd part of some tensors */
    ONE_OF_TWO,          /* rows of every second tensor */
    LOAD_SCHEMES,
    FEW_ROWS = LOAD_SCHEMES, /* of a dozen tensors, like ROWS and COLUMNS */
    FEW_COLUMNS
} scheme;

extern const char *const scheme_names[];

typedef struct held_box {
    size_t tensor;
    dcp_box box;
    unsigned char *data;
} held_box;

/* What one rank of `size` holds. */
typedef struct held {
    dcp_state *state;
    held_box *boxes;
    size_t n;
} held;

/* The single box of tensor t that a rank of `size` holds; not for STRIPES. */
dcp_box given_box(const given *g, size_t t, scheme how, int rank, int size);

/* filled: with the given state's content; otherwise without it, for a load. */
void held_make(held *h, const given *g, scheme how, int rank, int size, int filled);
void held_free(held *h);
/* Returns 1 if all boxes have the given state's content. */
int held_is_given(const held *h, const given *g);

/* The elements of the box of tensor t, dense; allocated with malloc. */
unsigned char *given_cut(const given *g, size_t t, const dcp_box *box, uint64_t *bytes);

#endif
