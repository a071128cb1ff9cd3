/* The code is ISA-L's Cauchy matrix: its upper part is the identity, and any square choice of its
 * rows can be inverted. With one row of data, the other row is a copy; so partner is a code like
 * the others. */
#include "redundancy/code.h"

#include <isa-l.h>
#include <stdlib.h>
#include <string.h>

int redundancy_code_strips(const code_group *g) {
    return g->kind == REDUNDANCY_RS ? g->members : 2;
}

int redundancy_code_data_strips(const code_group *g) {
    return g->kind == REDUNDANCY_RS ? g->members - g->lost : 1;
}

/* Below `lost`: this row of the stripe is redundant. Else it is data, and its number is that less
 * `lost`. */
static int rotation(const code_group *g, int number, int member) {
    return (member - number + g->members) % g->members;
}

static code_strip strip_of_rs(const code_group *g, int number, int member) {
    code_strip strip = {member, rotation(g, number, member) < g->lost, 0};
    for (int s = 0; s < number; s++)
        strip.index += (rotation(g, s, member) < g->lost) == strip.redundant;
    return strip;
}

void redundancy_code_stripe(const code_group *g, int number, code_strip *out) {
    if (g->kind != REDUNDANCY_RS) {
        out[0] = (code_strip){number, 0, 0};
        out[1] = (code_strip){(number + 1) % g->members, 1, 0};
        return;
    }
    for (int row = 0; row < g->members; row++) {
        int turned = (row + g->lost) % g->members; /* data first */
        out[row] = strip_of_rs(g, number, (number + turned) % g->members);
    }
}

int redundancy_code_solve(const code_group *g, const int *present, int wanted,
                          unsigned char *coeffs) {
    int strips = redundancy_code_strips(g), n = redundancy_code_data_strips(g), status = -1;
    size_t rows = (size_t)strips, columns = (size_t)n;
    unsigned char *matrix = malloc(rows * columns), *chosen = malloc(columns * columns);
    unsigned char *inverse = malloc(columns * columns);
    if (!matrix || !chosen || !inverse) goto free_all;
    gf_gen_cauchy1_matrix(matrix, strips, n);
    for (int i = 0; i < n; i++) memcpy(chosen + i * n, matrix + present[i] * n, columns);
    if (gf_invert_matrix(chosen, inverse, n)) goto free_all;
    for (int j = 0; j < n; j++) {
        coeffs[j] = 0;
        for (int i = 0; i < n; i++) coeffs[j] ^= gf_mul(matrix[wanted * n + i], inverse[i * n + j]);
    }
    status = 0;
free_all:
    free(matrix);
    free(chosen);
    free(inverse);
    return status;
}

void redundancy_code_combine(uint64_t bytes, int n_in, int n_out, unsigned char *coeffs,
                             unsigned char **in, unsigned char **out) {
    unsigned char tables[32 * REDUNDANCY_MAX_MEMBERS];
    for (int i = 0; i < n_out; i++) {
        ec_init_tables(n_in, 1, coeffs + i * n_in, tables);
        ec_encode_data((int)bytes, n_in, 1, tables, in, &out[i]);
    }
}
