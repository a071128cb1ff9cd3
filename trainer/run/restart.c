/* Restarts are counted until a start has published a step newer than those that it found: a run
 * that makes progress may fail any number of times, one that does not ends after `max`. */
#include "restart.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "dcp/store.h"

int64_t restart_newest_step(const restart_budget *budget) {
    dcp_step *steps = NULL;
    size_t n = 0;
    int64_t newest = -1;
    if (!budget->dir || dcp_steps_list(budget->dir, &steps, &n, NULL) != DCP_OK) return -1;
    for (size_t i = 0; i < n; i++)
        if (steps[i].kind == DCP_STEP_COMPLETE && (int64_t)steps[i].step > newest)
            newest = (int64_t)steps[i].step;
    free(steps);
    return newest;
}

void restart_note_start(restart_budget *budget) { budget->at_start = restart_newest_step(budget); }

int restart_allowed(restart_budget *budget) {
    if (restart_newest_step(budget) > budget->at_start) budget->used = 0;
    if (budget->used >= budget->max) return 0;
    budget->used++;
    return 1;
}

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

char *restart_dir_of(char *const *program) {
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
