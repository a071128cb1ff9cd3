/* A save is known by the member "save" of its about.json, which is the same on all nodes. */
#include "store/newest.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/crc64.h"
#include "step/about.h"
#include "step/list.h"

/* Of what this rank's node has. */
typedef struct own_steps {
    const char *dir;
    const dcp_step *steps;
    size_t n;
} own_steps;

/* A number for the save that wrote the step's folder; 0: not known. */
static uint64_t save_of(const own_steps *own, const char *name) {
    char folder[PATH_MAX];
    json_t *about = NULL;
    uint64_t number = 0;
    if (snprintf(folder, sizeof folder, "%s/%s", own->dir, name) >= PATH_MAX) return 0;
    if (step_about_parse(folder, &about, NULL)) return 0;
    const char *save = json_string_value(json_object_get(about, "save"));
    if (save) number = core_crc64(save, strlen(save));
    json_decref(about);
    return number;
}

static const dcp_step *find_complete(const own_steps *own, uint64_t step) {
    for (size_t i = 0; i < own->n; i++)
        if (own->steps[i].step == step && own->steps[i].kind == DCP_STEP_COMPLETE)
            return &own->steps[i];
    return NULL;
}

/* Whether this node has set the step aside. save: that one alone; 0: whichever. */
static int has_set_aside(const own_steps *own, uint64_t step, uint64_t save) {
    for (size_t i = 0; i < own->n; i++)
        if (own->steps[i].step == step && own->steps[i].kind == DCP_STEP_ABANDONED &&
            (!save || save_of(own, own->steps[i].name) == save))
            return 1;
    return 0;
}

/* Collective: whether nodes that lack the step have set aside the save that is all others'. Files
 * are read only where some node has set the step aside. */
static int came_back(dcp_comm *comm, const own_steps *own, uint64_t step, int *answer,
                     dcp_error *err) {
    const dcp_step *complete = find_complete(own, step);
    uint64_t is_aside = !complete && has_set_aside(own, step, 0);
    *answer = 0;
    int status = comm_allreduce(comm, &is_aside, 1, DCP_REDUCE_MAX, err);
    if (status || !is_aside) return status;
    const uint64_t mine = complete ? save_of(own, complete->name) : 0;
    /* the largest, and the smallest one's complement */
    uint64_t saves[] = {mine, complete ? ~mine : 0};
    status = comm_allreduce(comm, saves, 2, DCP_REDUCE_MAX, err);
    if (status || !saves[0] || saves[0] != ~saves[1]) return status;
    uint64_t is_same = !complete && has_set_aside(own, step, saves[0]);
    status = comm_allreduce(comm, &is_same, 1, DCP_REDUCE_MAX, err);
    *answer = !status && is_same;
    return status;
}

int store_newest_of_nodes(dcp_comm *comm, const char *dir, const dcp_step *steps, size_t n,
                          uint64_t limit, uint64_t *next, uint64_t *passed, dcp_error *err) {
    enum { NEXT, ANY_ASIDE, WORDS };
    const own_steps own = {dir, steps, n};
    uint64_t any_aside = 0;
    for (size_t i = 0; i < n; i++) any_aside |= steps[i].kind == DCP_STEP_ABANDONED;
    for (;; limit = *next - 1) {
        uint64_t told[WORDS] = {step_list_newest_below(steps, n, limit), any_aside};
        int is_left_out = 0, status = comm_allreduce(comm, told, WORDS, DCP_REDUCE_MAX, err);
        if (status) return status;
        *next = told[NEXT];
        if (!*next || !told[ANY_ASIDE]) return DCP_OK;
        status = came_back(comm, &own, *next - 1, &is_left_out, err);
        if (status || !is_left_out) return status;
        if (passed && *passed < *next) *passed = *next;
    }
}
