/* Ranks are sorted by failure domain and dealt to the groups in turn, like cards to players. If no
 * domain has more ranks than there are groups, no group gets two ranks of one domain. The sizes of
 * the groups differ by at most one. */
#include "redundancy/groups.h"

#include <assert.h>
#include <isa-l.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/fail.h"

#define DEFAULT_MEMBERS 8

static int fail_text(const char *text, dcp_error *err) {
    return core_fail(err, DCP_ERR_ARG,
                     "redundancy \"%.40s\": it must be \"none\", \"partner\" or \"rs(K)\" with K "
                     "from 1 to %d, which is how many members of a group may be lost",
                     text, REDUNDANCY_MAX_LOST);
}

int redundancy_parse(const char *text, redundancy_spec *out, dcp_error *err) {
    if (!text || !*text || !strcmp(text, "none")) {
        *out = (redundancy_spec){REDUNDANCY_NONE, 0};
        return DCP_OK;
    }
    if (!strcmp(text, "partner")) {
        *out = (redundancy_spec){REDUNDANCY_PARTNER, 1};
        return DCP_OK;
    }
    if (strncmp(text, "rs(", 3)) return fail_text(text, err);
    const char *digits = text + 3;
    size_t n = strspn(digits, "0123456789");
    int lost = n && n <= 2 ? atoi(digits) : 0;
    if (strcmp(digits + n, ")") || digits[0] == '0' || lost < 1 || lost > REDUNDANCY_MAX_LOST)
        return fail_text(text, err);
    *out = (redundancy_spec){REDUNDANCY_RS, lost};
    return DCP_OK;
}

typedef struct placed_rank {
    uint64_t domain;
    int rank;
} placed_rank;

static int by_domain(const void *a, const void *b) {
    const placed_rank *x = a, *y = b;
    if (x->domain != y->domain) return x->domain < y->domain ? -1 : 1;
    return x->rank - y->rank;
}

/* Returns the number of different domains; *largest is the number of ranks in the largest
 * domain. */
static int count_domains(const placed_rank *sorted, int world, int *largest) {
    int domains = 0, first = 0;
    *largest = 0;
    for (int i = 0; i < world; i++) {
        if (!i || sorted[i].domain != sorted[i - 1].domain) {
            domains++;
            first = i;
        }
        if (i - first >= *largest) *largest = i - first + 1;
    }
    return domains;
}

static int divide_up(int a, int b) { return (a + b - 1) / b; }

/* Chooses the number of groups: as few as possible such that no group has two members of one
 * domain. */
static int choose_groups(const redundancy_spec *spec, const placed_rank *sorted, int world,
                         int group_size, int *n, dcp_error *err) {
    char kind[16];
    snprintf(kind, sizeof kind, spec->kind == REDUNDANCY_RS ? "rs(%d)" : "partner", spec->lost);
    int largest, domains = count_domains(sorted, world, &largest), least = spec->lost + 1;
    if (domains < least)
        return core_fail(
            err, DCP_ERR_ARG,
            "redundancy %s needs ranks in at least %d failure domains, but they are in %d: use "
            "more hosts, name smaller domains, or choose a redundancy that survives fewer losses",
            kind, least, domains);
    if (!group_size)
        group_size = 2 * spec->lost > DEFAULT_MEMBERS ? 2 * spec->lost : DEFAULT_MEMBERS;
    if (group_size < least || group_size > REDUNDANCY_MAX_MEMBERS)
        return core_fail(err, DCP_ERR_ARG,
                         "redundancy: groups of %d members: each must have from %d to %d",
                         group_size, least, REDUNDANCY_MAX_MEMBERS);
    *n = divide_up(world, group_size);
    if (world / *n < least) *n = world / least;
    if (*n < largest) *n = largest;
    if (world / *n < least)
        return core_fail(err, DCP_ERR_ARG,
                         "redundancy %s needs groups of at least %d ranks in different failure "
                         "domains, but one domain has %d of the %d ranks: spread the ranks evenly",
                         kind, least, largest, world);
    return DCP_OK;
}

static redundancy_groups *allocate_groups(const redundancy_spec *spec, int world) {
    redundancy_groups *groups = calloc(1, sizeof *groups);
    if (!groups) return NULL;
    groups->spec = *spec;
    groups->world = world;
    groups->order = core_array((size_t)world, sizeof *groups->order);
    groups->place = core_array((size_t)world, sizeof *groups->place);
    if (groups->order && groups->place) return groups;
    redundancy_groups_free(groups);
    return NULL;
}

int redundancy_groups_make(const redundancy_spec *spec, const uint64_t *domains, int world,
                           int group_size, redundancy_groups **out, dcp_error *err) {
    placed_rank *sorted = core_array((size_t)world, sizeof *sorted);
    redundancy_groups *groups = allocate_groups(spec, world);
    int status = DCP_OK;
    if (!sorted || !groups) {
        status = core_fail_memory(err, (uint64_t)world * sizeof *sorted);
        goto free_sorted;
    }
    for (int r = 0; r < world; r++) sorted[r] = (placed_rank){domains[r], r};
    qsort(sorted, (size_t)world, sizeof *sorted, by_domain);
    for (int i = 0; i < world; i++) {
        groups->order[i] = sorted[i].rank;
        groups->place[sorted[i].rank] = i;
    }
    if (spec->kind != REDUNDANCY_NONE)
        status = choose_groups(spec, sorted, world, group_size, &groups->n, err);
free_sorted:
    free(sorted);
    if (status)
        redundancy_groups_free(groups);
    else
        *out = groups;
    return status;
}

int redundancy_groups_collect(dcp_comm *comm, const redundancy_spec *spec, uint64_t domain,
                              redundancy_groups **out, dcp_error *err) {
    size_t world = (size_t)comm->size;
    redundancy_groups *groups = NULL;
    uint64_t *domains = core_array(world, sizeof *domains);
    int status = comm_agree(comm, domains ? DCP_OK : core_fail_memory(err, world * 8), err);
    if (!status)
        status = comm_gather(comm, &domain, sizeof domain, comm->rank ? NULL : domains, 0, err);
    if (!status) status = comm_broadcast(comm, domains, world * sizeof *domains, 0, err);
    if (!status) {
        status = redundancy_groups_make(spec, domains, comm->size, 0, &groups, err);
        status = comm_agree(comm, status, err);
    }
    free(domains);
    if (status)
        redundancy_groups_free(groups);
    else
        *out = groups;
    return status;
}

void redundancy_groups_free(redundancy_groups *groups) {
    if (!groups) return;
    free(groups->order);
    free(groups->place);
    free(groups);
}

int redundancy_group_members(const redundancy_groups *groups, int g) {
    return (groups->world - g + groups->n - 1) / groups->n;
}

int redundancy_group_of(const redundancy_groups *groups, int rank, int *member) {
    *member = groups->place[rank] / groups->n;
    return groups->place[rank] % groups->n;
}

/* The code is ISA-L's Cauchy matrix: its upper part is the identity, and any square selection of
 * its rows can be inverted. With one row of data, a redundant row is a copy of it, so "partner" is
 * a special case of the code. */

int redundancy_code_strips(const code_group *g) {
    return g->kind == REDUNDANCY_RS ? g->members : 2;
}

int redundancy_code_data_strips(const code_group *g) {
    return g->kind == REDUNDANCY_RS ? g->members - g->lost : 1;
}

/* Returns the member's position in the stripe. The first `lost` positions have redundant strips;
 * the positions after them have data, and row = position - `lost`. */
static int rotation(const code_group *g, int number, int member) {
    assert(number >= 0 && number < g->members && member >= 0 && member < g->members);
    return (member - number + g->members) % g->members;
}

static code_strip strip_of_rs(const code_group *g, int number, int member) {
    code_strip strip = {member, rotation(g, number, member) < g->lost, 0};
    for (int s = 0; s < number; s++)
        strip.index += (rotation(g, s, member) < g->lost) == strip.redundant;
    return strip;
}

void redundancy_code_stripe(const code_group *g, int number, code_strip *out) {
    assert(number >= 0 && number < g->members);
    if (g->kind != REDUNDANCY_RS) {
        out[0] = (code_strip){number, false, 0};
        out[1] = (code_strip){(number + 1) % g->members, true, 0};
        return;
    }
    for (int row = 0; row < g->members; row++) {
        int turned = (row + g->lost) % g->members; /* data strips come first */
        out[row] = strip_of_rs(g, number, (number + turned) % g->members);
    }
}

int redundancy_code_solve(const code_group *g, const int *present, int wanted,
                          unsigned char *coeffs) {
    int strips = redundancy_code_strips(g), n = redundancy_code_data_strips(g), status = -1;
    size_t rows = (size_t)strips, columns = (size_t)n;
    unsigned char *matrix = core_array(rows, columns), *chosen = core_array(columns, columns);
    unsigned char *inverse = core_array(columns, columns);
    assert(n > 0 && wanted >= 0 && wanted < strips);
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
    assert(n_in <= REDUNDANCY_MAX_MEMBERS && bytes <= INT_MAX);
    for (int i = 0; i < n_out; i++) {
        ec_init_tables(n_in, 1, coeffs + i * n_in, tables);
        ec_encode_data((int)bytes, n_in, 1, tables, in, &out[i]);
    }
}
