/* Which save a survey is about: redundancy files of the same save say the same of it, and where
 * there are files of several saves, as many ranks as possible decide. */
#include <stdlib.h>

#include "core/fail.h"
#include "redundancy/survey.h"

/* What the redundancy files of one save have in common, and how many of them there are. */
typedef struct save_votes {
    uint64_t step, set;
    int world, kind, lost, votes;
} save_votes;

static save_votes vote_of(const parity_header *h) {
    return (save_votes){h->step, h->set, h->world, (int)h->group.kind, h->group.lost, 1};
}

static int is_same_save(const save_votes *a, const save_votes *b) {
    return a->step == b->step && a->set == b->set && a->world == b->world && a->kind == b->kind &&
           a->lost == b->lost;
}

int survey_has(const redundancy_survey *s, const parity_header *h) {
    save_votes wanted = {s->step, s->set, s->world, (int)s->kind, s->lost, 0}, has = vote_of(h);
    return is_same_save(&wanted, &has);
}

/* The save with the most votes of `list`, where equal ones are added up; of two the later. */
static save_votes most_votes(const save_votes *list, size_t n) {
    save_votes best = {0};
    for (size_t i = 0; i < n; i++) {
        save_votes sum = list[i];
        if (best.votes && is_same_save(&sum, &best)) continue;
        sum.votes = 0;
        for (size_t j = 0; j < n; j++)
            if (is_same_save(&list[j], &sum)) sum.votes += list[j].votes;
        int later = sum.step > best.step || (sum.step == best.step && sum.set > best.set);
        if (sum.votes > best.votes || (sum.votes && sum.votes == best.votes && later)) best = sum;
    }
    return best;
}

static int own_vote(const redundancy_survey *s, save_votes *out, dcp_error *err) {
    size_t n = 0;
    save_votes *list = malloc((s->n_found + 1) * sizeof *list);
    if (!list) return core_fail_memory(err, (s->n_found + 1) * sizeof *list);
    for (size_t i = 0; i < s->n_found; i++)
        if (s->found[i].usable && s->found[i].header) list[n++] = vote_of(s->found[i].header);
    *out = most_votes(list, n);
    free(list);
    return DCP_OK;
}

int survey_elect(dcp_comm *comm, redundancy_survey *s, dcp_error *err) {
    size_t size = (size_t)comm->size;
    save_votes own = {0}, *all = malloc(size * sizeof *all);
    int status = all ? own_vote(s, &own, err) : core_fail_memory(err, size * sizeof *all);
    status = comm_agree(comm, status, err);
    if (!status) status = comm_gather(comm, &own, sizeof own, comm->rank ? NULL : all, 0, err);
    if (!status && comm->rank == 0) own = most_votes(all, size);
    if (!status) status = comm_broadcast(comm, &own, sizeof own, 0, err);
    free(all);
    if (status) return status;
    if (!own.votes)
        return core_fail(err, DCP_ERR_NOT_FOUND,
                         "redundancy: no rank sees an intact redundancy file of this step");
    s->step = own.step;
    s->set = own.set;
    s->world = own.world;
    s->kind = (redundancy_kind)own.kind;
    s->lost = own.lost;
    return DCP_OK;
}
