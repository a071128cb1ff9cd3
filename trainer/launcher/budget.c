#include "launcher/budget.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dcp/store.h>

#include "programs/json_read.h"

/* Returns the directory that an override specifies: the value of the text if that is a JSON string,
 * otherwise the text itself. */
static json_t *dir_of_override(const char *text) {
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (json_is_string(value)) return value;
    json_decref(value);
    return json_string(text);
}

/* The directory and the stores, from the file or an override. */
typedef struct found_stores {
    json_t *dir, *stores;
} found_stores;

static void replace(json_t **old, json_t *with) {
    if (!with) return;
    json_decref(*old);
    *old = with;
}

static void take_override(found_stores *f, const char *argument) {
    static const char dir[] = "checkpoint.dir=", stores[] = "checkpoint.stores=";
    if (strncmp(argument, dir, sizeof dir - 1) == 0)
        replace(&f->dir, dir_of_override(argument + sizeof dir - 1));
    if (strncmp(argument, stores, sizeof stores - 1) == 0)
        replace(&f->stores, json_loads(argument + sizeof stores - 1, 0, NULL));
}

/* Reads a configuration. Like dcp-train, skips a UTF-8 byte order mark. */
static json_t *load_config(const char *path) {
    char begin[3];
    FILE *file = fopen(path, "re");
    if (!file) return NULL;
    if (!program_json_mark(begin, fread(begin, 1, sizeof begin, file))) rewind(file);
    json_t *config = json_loadf(file, 0, NULL);
    fclose(file);
    return config;
}

static void take_config(found_stores *f, const char *path) {
    json_t *config = load_config(path);
    const json_t *checkpoint = json_object_get(config, "checkpoint");
    json_t *dir = json_object_get(checkpoint, "dir");
    if (config && !f->dir) f->dir = json_is_string(dir) ? json_incref(dir) : json_string("ckpt");
    if (!f->stores) f->stores = json_incref(json_object_get(checkpoint, "stores"));
    json_decref(config);
}

static void add(launcher_watched *dirs, const char *path) {
    char **more = path ? realloc(dirs->at, (dirs->n + 1) * sizeof *more) : NULL;
    if (!more) return;
    dirs->at = more;
    if ((dirs->at[dirs->n] = strdup(path))) dirs->n++;
}

bool launcher_watched_is_train(const char *program) {
    const char *slash = strrchr(program, '/');
    return strcmp(slash ? slash + 1 : program, "dcp-train") == 0;
}

char *const *launcher_watched_find_train(char *const *program) {
    while (*program && !launcher_watched_is_train(*program)) program++;
    return *program ? program : NULL;
}

void launcher_watched_find(launcher_watched *dirs, const char *watch, char *const *program) {
    found_stores f = {0};
    *dirs = (launcher_watched){0};
    char *const *train = launcher_watched_find_train(program);
    if (train) {
        for (char *const *arg = train + 1; *arg; arg++) take_override(&f, *arg);
        for (char *const *arg = train + 1; *arg && (!f.dir || !f.stores); arg++)
            if (!strchr(*arg, '=') && (*arg)[0] != '-') take_config(&f, *arg);
    }
    add(dirs, watch ? watch : json_string_value(f.dir));
    const json_t *store;
    size_t i;
    if (dirs->n) /* if there is no directory, no configuration could be read */
        json_array_foreach(f.stores, i, store) {
            const char *redundancy = json_string_value(json_object_get(store, "redundancy"));
            add(dirs, json_string_value(json_object_get(store, "path")));
            dirs->has_redundancy |= redundancy && strcmp(redundancy, "none") != 0;
        }
    json_decref(f.dir);
    json_decref(f.stores);
}

void launcher_watched_free(launcher_watched *dirs) {
    for (size_t i = 0; i < dirs->n; i++) free(dirs->at[i]);
    free(dirs->at);
    *dirs = (launcher_watched){0};
}

/* A complete step. Inode and time distinguish it from other steps with the same number. */
typedef struct launcher_published {
    int64_t step; /* -1: none */
    ino_t inode;
    struct timespec made;
} published_step;

/* Identifies a listed step by its folder. The result has step -1 if the listed step is not
 * complete, or no longer exists. */
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

static bool was_there(const launcher_budget *budget, const published_step *step) {
    for (size_t i = 0; i < budget->n_before; i++) {
        const published_step *b = &budget->before[i];
        if (b->step == step->step && b->inode == step->inode &&
            b->made.tv_sec == step->made.tv_sec && b->made.tv_nsec == step->made.tv_nsec)
            return true;
    }
    return false;
}

bool launcher_budget_record(launcher_budget *budget, int64_t step) {
    if (step <= budget->published) return false;
    budget->published = step;
    budget->used = 0;
    return true;
}

static void count_new(void *ctx, const published_step *step) {
    launcher_budget *budget = ctx;
    if (step->step > budget->published && !was_there(budget, step))
        launcher_budget_record(budget, step->step);
}

bool launcher_budget_allows(launcher_budget *budget) {
    visit_steps(budget->dirs, count_new, budget);
    if (budget->used >= budget->max) return false;
    budget->used++;
    return true;
}

bool launcher_budget_has_published(launcher_budget *budget) {
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
