/* Of each group the members that each domain has are counted. A member counts where any of its
 * files lies. */
#include "redundancy/losses.h"

#include <stdlib.h>
#include <string.h>

/* The members of a group that one domain has files of. */
typedef struct domain_share {
    uint64_t domain;
    int n;
    unsigned char has[REDUNDANCY_MAX_MEMBERS];
} domain_share;

static int most_members_first(const void *a, const void *b) {
    return ((const domain_share *)b)->n - ((const domain_share *)a)->n;
}

static void add_member(domain_share *shares, int *n, uint64_t domain, int member) {
    int i = 0;
    while (i < *n && shares[i].domain != domain) i++;
    if (i == *n) shares[(*n)++] = (domain_share){.domain = domain};
    if (!shares[i].has[member]) shares[i].n++;
    shares[i].has[member] = 1;
}

/* Into shares[2 * REDUNDANCY_MAX_MEMBERS]; how many, or -1 where a file is lost. */
static int share_out(const redundancy_survey *s, int leader, code_group *g, domain_share *shares) {
    int numbers[REDUNDANCY_MAX_MEMBERS], n = 0;
    redundancy_survey_group(s, leader, g, numbers);
    for (int m = 0; m < g->members; m++)
        for (int k = 0; k < 2; k++) {
            int rank = s->files[numbers[m] + k * s->world].rank;
            if (rank < 0) return -1;
            add_member(shares, &n, s->domains[rank], m);
        }
    return n;
}

static int has_neighbours(const domain_share *share, int members) {
    for (int m = 0; m < members; m++)
        if (share->has[m] && share->has[(m + 1) % members]) return 1;
    return 0;
}

static int survived_by_group(const redundancy_survey *s, int leader) {
    domain_share shares[2 * REDUNDANCY_MAX_MEMBERS];
    code_group g;
    int lost = 0, n = share_out(s, leader, &g, shares);
    if (n < 0) return 0;
    if (g.kind == REDUNDANCY_PARTNER) {
        for (int i = 0; i < n; i++)
            if (has_neighbours(&shares[i], g.members)) return 0;
        return 1;
    }
    qsort(shares, (size_t)n, sizeof *shares, most_members_first);
    for (int i = 0; i < n; i++)
        if ((lost += shares[i].n) > g.lost) return i;
    return n;
}

int redundancy_losses_survived(const redundancy_survey *s) {
    int least = s->lost;
    for (int f = 0; f < s->world; f++) {
        if (s->shards[f].leader < 0) return 0;
        int here = s->shards[f].leader == f ? survived_by_group(s, f) : least;
        if (here < least) least = here;
    }
    return least;
}
