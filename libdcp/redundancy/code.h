/* The erasure code of a group: arithmetic over GF(2^8), no files.
 *
 * A group of g members has g stripes. A stripe of rs(k) has a strip on every member. k of its
 * strips are redundant. The other g - k are the next segments of those members' data. From stripe
 * to stripe the redundant strips move on by one member, so that all members hold the same number of
 * them (as in SCR, "Reed-Solomon"). A stripe of partner has two strips: a member's whole file, and
 * its copy on the next member. The rows of a stripe are its strips, data first. Any
 * redundancy_code_data_strips() of them give the others. */
#pragma once

#include "redundancy/groups.h"

typedef struct code_group {
    redundancy_kind kind;
    int members, lost; /* g and k */
} code_group;

typedef struct code_strip {
    int member;
    int redundant; /* 0: of the member's file; 1: of its redundancy file */
    int index;     /* which strip of that file */
} code_strip;

/* Strips in a stripe, and how many of them are data. */
int redundancy_code_strips(const code_group *g);
int redundancy_code_data_strips(const code_group *g);

/* The strips of stripe number `number` (0 to members - 1), by row. */
void redundancy_code_stripe(const code_group *g, int number,
                            code_strip *out /* redundancy_code_strips() */);

/* coeffs[redundancy_code_data_strips()]: what row `wanted` is as a sum of the rows `present`, which
 * are redundancy_code_data_strips() different ones. 0, or -1 where memory is short. */
int redundancy_code_solve(const code_group *g, const int *present, int wanted,
                          unsigned char *coeffs);

/* out[i][0 .. bytes) = sum over j of coeffs[i * n_in + j] * in[j]. */
void redundancy_code_combine(uint64_t bytes, int n_in, int n_out, unsigned char *coeffs,
                             unsigned char **in, unsigned char **out);
