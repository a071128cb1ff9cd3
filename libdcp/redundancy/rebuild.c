/* Writing what is lost, some groups at a time: of each stripe, enough strips that are left go to
 * the ranks that write the others. A rebuilt shard gets its name when its checksum is that which
 * the redundancy files know; the sources of all are files that the survey has read whole. */
#include <stdlib.h>

#include "core/fail.h"
#include "redundancy/rebuild_group.h"

#define GROUPS_AT_ONCE 64

typedef struct rebuilder {
    rebuild_site at;
    rebuild_group *groups; /* collected ones, each with losses */
    int n_groups;
    stripe *stripes;
    size_t n_stripes;
} rebuilder;

static strip strip_at(const rebuilder *r, rebuild_group *g, const code_strip *at, uint64_t bytes) {
    rebuild_slot *from = &g->slots[at->redundant][at->member];
    strip s = {from->rank, NULL, (uint64_t)at->index * bytes};
    int lost = rebuild_group_lacks(&r->at, g, at->redundant, at->member);
    if (s.rank == r->at.comm->rank) s.file = lost ? &from->out.file : &from->in;
    return s;
}

/* The rows of a stripe that are there, as many as it takes, and those that are not. */
static void sort_rows(const rebuilder *r, const rebuild_group *g, const code_strip *rows,
                      int *present, int *lost, int *n_lost) {
    int n = 0;
    *n_lost = 0;
    for (int row = 0; row < code_strips(&g->group); row++) {
        if (rebuild_group_lacks(&r->at, g, rows[row].redundant, rows[row].member))
            lost[(*n_lost)++] = row;
        else if (n < code_data_strips(&g->group))
            present[n++] = row;
    }
}

static int add_stripe(rebuilder *r, rebuild_group *g, int number, uint64_t bytes, dcp_error *err) {
    code_strip rows[REDUNDANCY_MAX_MEMBERS];
    int present[REDUNDANCY_MAX_MEMBERS], lost[REDUNDANCY_MAX_MEMBERS], n_lost;
    int n = code_data_strips(&g->group);
    code_stripe(&g->group, number, rows);
    sort_rows(r, g, rows, present, lost, &n_lost);
    if (!n_lost) return DCP_OK;
    stripe *s = &r->stripes[r->n_stripes++];
    if (stripe_allocate(s, n, n_lost)) return core_fail_memory(err, sizeof *s);
    s->bytes = bytes;
    for (int i = 0; i < n; i++) s->in[i] = strip_at(r, g, &rows[present[i]], bytes);
    for (int o = 0; o < n_lost; o++) {
        s->out[o] = strip_at(r, g, &rows[lost[o]], bytes);
        if (code_solve(&g->group, present, lost[o], s->coeffs + o * n))
            return core_fail_memory(err, (uint64_t)n * (uint64_t)n);
    }
    return DCP_OK;
}

static int begin_stripes(rebuilder *r, dcp_error *err) {
    size_t most = 0;
    int status = DCP_OK;
    for (int i = 0; i < r->n_groups; i++) most += (size_t)r->groups[i].group.members;
    r->stripes = calloc(most + 1, sizeof *r->stripes);
    if (!r->stripes) return core_fail_memory(err, most * sizeof *r->stripes);
    for (int i = 0; i < r->n_groups && !status; i++) {
        rebuild_group *g = &r->groups[i];
        parity_header h;
        survey_header(r->at.survey, g->leader, 0, &h);
        status = rebuild_group_open(&r->at, g, err);
        for (int j = 0; j < g->group.members && !status; j++)
            status = add_stripe(r, g, j, parity_strip_bytes(&h, j), err);
    }
    return status;
}

static int finish_groups(rebuilder *r, dcp_error *err) {
    int status = DCP_OK;
    for (int i = 0; i < r->n_groups && !status; i++)
        status = rebuild_group_finish(&r->at, &r->groups[i], err);
    return status;
}

static void end_groups(rebuilder *r) {
    for (int i = 0; i < r->n_groups; i++) rebuild_group_end(&r->groups[i]);
    stripes_free(r->stripes, r->n_stripes);
    r->stripes = NULL;
    r->n_stripes = 0;
    r->n_groups = 0;
}

/* The groups that were collected. */
static int rebuild_collected(rebuilder *r, dcp_error *err) {
    int status = comm_agree(r->at.comm, begin_stripes(r, err), err);
    if (!status) status = stripes_move(r->at.comm, r->stripes, r->n_stripes, err);
    if (!status) status = comm_agree(r->at.comm, finish_groups(r, err), err);
    for (int i = 0; i < r->n_groups && !status; i++) rebuild_group_tell(&r->at, &r->groups[i]);
    end_groups(r);
    return status;
}

/* As many groups at once as there are ranks, so that the work of one falls to a rank, usually. */
static int most_groups(const dcp_comm *comm) {
    return comm->size < GROUPS_AT_ONCE ? comm->size : GROUPS_AT_ONCE;
}

static int rebuild_groups(rebuilder *r, dcp_error *err) {
    int status = DCP_OK;
    for (int f = 0; f < r->at.survey->world && !status; f++) {
        if (r->at.survey->shards[f].leader == f)
            r->n_groups += rebuild_group_begin(&r->at, f, &r->groups[r->n_groups]);
        if (r->n_groups == most_groups(r->at.comm)) status = rebuild_collected(r, err);
    }
    return !status && r->n_groups ? rebuild_collected(r, err) : status;
}

static int check_arguments(const redundancy_survey *s, const char *folder, dcp_error *err) {
    if (!s || !folder || !s->every_byte)
        return core_fail(err, DCP_ERR_ARG,
                         "redundancy_rebuild: a survey of every byte and a folder are needed");
    return redundancy_survey_check(s, err);
}

int redundancy_rebuild(dcp_comm *comm, redundancy_survey *survey, const char *folder,
                       dcp_error *err) {
    rebuilder r = {.at = {comm, survey, folder}};
    int status = check_arguments(survey, folder, err);
    size_t n = (size_t)most_groups(comm);
    if (!status && !(r.groups = calloc(n, sizeof *r.groups)))
        status = core_fail_memory(err, n * sizeof *r.groups);
    status = comm_agree(comm, status, err);
    if (!status) status = rebuild_groups(&r, err);
    free(r.groups);
    return status;
}
