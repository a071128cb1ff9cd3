#include "launcher/budget.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include <dcp/store.h>

/* A complete step. Inode and time tell it from other steps of the same number. */
typedef struct launcher_published {
    int64_t step; /* -1: none */
    ino_t inode;
    struct timespec made;
} published_step;

/* The folder behind a listed step; step -1 where it is not complete, or is gone by now. */
static published_step identify(const char *dir, const dcp_step *listed) {
    const published_step none = {.step = -1};
    char path[PATH_MAX];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s/step-%08" PRIu64, dir, listed->step);
    if (listed->kind != DCP_STEP_COMPLETE || n < 0 || (size_t)n >= sizeof path) return none;
    if (stat(path, &st) != 0) return none;
    return (published_step){(int64_t)listed->step, st.st_ino, st.st_mtim};
}

/* Calls `visit` with each complete step of each store. */
static void visit_steps(const launcher_watched *dirs,
                        void (*visit)(void *ctx, const published_step *step), void *ctx) {
    for (size_t d = 0; d < dirs->n; d++) {
        dcp_step *listed = NULL;
        size_t n = 0;
        if (dcp_steps_list(dirs->at[d], &listed, &n, NULL) != DCP_OK) continue;
        for (size_t i = 0; i < n; i++) {
            const published_step step = identify(dirs->at[d], &listed[i]);
            if (step.step >= 0) visit(ctx, &step);
        }
        free(listed);
    }
}

static void keep_known(void *ctx, const published_step *step) {
    launcher_budget *budget = ctx;
    published_step *more = realloc(budget->before, (budget->n_before + 1) * sizeof *more);
    if (!more) return;
    budget->before = more;
    budget->before[budget->n_before++] = *step;
}

void launcher_budget_begin(launcher_budget *budget, const launcher_watched *dirs, int max) {
    *budget = (launcher_budget){.dirs = dirs, .max = max, .published = -1};
    visit_steps(dirs, keep_known, budget);
}

void launcher_budget_end(launcher_budget *budget) { free(budget->before); }

static int was_there(const launcher_budget *budget, const published_step *step) {
    for (size_t i = 0; i < budget->n_before; i++) {
        const published_step *b = &budget->before[i];
        if (b->step == step->step && b->inode == step->inode &&
            b->made.tv_sec == step->made.tv_sec && b->made.tv_nsec == step->made.tv_nsec)
            return 1;
    }
    return 0;
}

int launcher_budget_told(launcher_budget *budget, int64_t step) {
    if (step <= budget->published) return 0;
    budget->published = step;
    budget->used = 0;
    return 1;
}

static void count_new(void *ctx, const published_step *step) {
    launcher_budget *budget = ctx;
    if (step->step > budget->published && !was_there(budget, step))
        launcher_budget_told(budget, step->step);
}

int launcher_budget_allows(launcher_budget *budget) {
    visit_steps(budget->dirs, count_new, budget);
    if (budget->used >= budget->max) return 0;
    budget->used++;
    return 1;
}

int launcher_budget_goes_on(launcher_budget *budget) {
    visit_steps(budget->dirs, count_new, budget);
    return budget->published >= 0;
}

static void take_newest(void *ctx, const published_step *step) {
    int64_t *newest = ctx;
    if (step->step > *newest) *newest = step->step;
}

int64_t launcher_budget_newest(const launcher_budget *budget) {
    int64_t newest = -1;
    visit_steps(budget->dirs, take_newest, &newest);
    return newest;
}
