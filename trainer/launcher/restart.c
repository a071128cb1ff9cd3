/* Restarts are counted until the run has published a step newer than those that it published
 * before: one that makes progress may fail any number of times, one that does not ends after `max`,
 * also where it starts over each time. Steps of earlier runs, which a run may set aside and publish
 * again under the same numbers, do not count: a step is its folder, not its number. */
#include "launcher/restart.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dcp/store.h>

/* The folder behind a listed step; step -1 where it is not complete, or is gone by now. */
static launcher_step identify(const char *dir, const dcp_step *listed) {
    const launcher_step none = {.step = -1};
    char path[PATH_MAX];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s/step-%08" PRIu64, dir, listed->step);
    if (listed->kind != DCP_STEP_COMPLETE || n < 0 || (size_t)n >= sizeof path) return none;
    if (stat(path, &st) != 0) return none;
    return (launcher_step){(int64_t)listed->step, st.st_ino, st.st_mtim};
}

/* The complete steps of the directory, freed by the caller; NULL: none. */
static launcher_step *list_steps(const char *dir, size_t *n_out) {
    dcp_step *listed = NULL;
    size_t n = 0;
    *n_out = 0;
    if (!dir || dcp_steps_list(dir, &listed, &n, NULL) != DCP_OK) return NULL;
    launcher_step *steps = calloc(n + 1, sizeof *steps);
    for (size_t i = 0; i < n && steps; i++) {
        steps[*n_out] = identify(dir, &listed[i]);
        if (steps[*n_out].step >= 0) (*n_out)++;
    }
    free(listed);
    return steps;
}

static launcher_step newest_of(const char *dir) {
    size_t n;
    launcher_step *steps = list_steps(dir, &n), newest = {.step = -1};
    for (size_t i = 0; i < n; i++)
        if (steps[i].step > newest.step) newest = steps[i];
    free(steps);
    return newest;
}

static int was_there(const launcher_budget *budget, const launcher_step *step) {
    for (size_t i = 0; i < budget->n_before; i++) {
        const launcher_step *b = &budget->before[i];
        if (b->step == step->step && b->inode == step->inode &&
            b->made.tv_sec == step->made.tv_sec && b->made.tv_nsec == step->made.tv_nsec)
            return 1;
    }
    return 0;
}

void launcher_restart_begin(launcher_budget *budget, const char *dir, int max) {
    *budget = (launcher_budget){.dir = dir, .max = max, .published = -1};
    budget->before = list_steps(dir, &budget->n_before);
}

void launcher_restart_end(launcher_budget *budget) { free(budget->before); }

int64_t launcher_restart_newest_step(const launcher_budget *budget) {
    return newest_of(budget->dir).step;
}

int launcher_restart_allowed(launcher_budget *budget) {
    const launcher_step newest = newest_of(budget->dir);
    if (newest.step > budget->published && !was_there(budget, &newest)) {
        budget->published = newest.step;
        budget->used = 0;
    }
    if (budget->used >= budget->max) return 0;
    budget->used++;
    return 1;
}

int launcher_restart_goes_on(const launcher_budget *budget) { return budget->published >= 0; }

/* checkpoint.dir of the file; dcp-train's default where it has none. */
static char *dir_of_config(const char *path) {
    json_t *config = json_load_file(path, 0, NULL);
    if (!config) return NULL;
    json_t *checkpoint = json_object_get(config, "checkpoint");
    const char *dir = json_string_value(json_object_get(checkpoint, "dir"));
    char *found = strdup(dir ? dir : "ckpt");
    json_decref(config);
    return found;
}

/* An override's value: JSON where it is a JSON string, else the characters themselves. */
static char *dir_of_override(const char *value) {
    json_t *parsed = json_loads(value, JSON_DECODE_ANY, NULL);
    char *dir = strdup(json_is_string(parsed) ? json_string_value(parsed) : value);
    json_decref(parsed);
    return dir;
}

char *launcher_restart_dir_of(char *const *program) {
    static const char override[] = "checkpoint.dir=";
    const char *slash = strrchr(program[0], '/');
    if (strcmp(slash ? slash + 1 : program[0], "dcp-train") != 0) return NULL;

    char *dir = NULL;
    for (char *const *arg = program + 1; *arg; arg++) {
        char *found = NULL;
        if (strncmp(*arg, override, sizeof override - 1) == 0)
            found = dir_of_override(*arg + sizeof override - 1);
        else if (!dir && !strchr(*arg, '=') && (*arg)[0] != '-')
            found = dir_of_config(*arg);
        if (!found) continue;
        free(dir);
        dir = found;
    }
    return dir;
}
