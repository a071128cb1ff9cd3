#include "common/tensor_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/params.h"
#include "programs/program.h"

static bool has_start(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static int add_rename(char *text, tensor_names *out) {
    char *equals = strchr(text, '=');
    if (!equals || equals == text) return program_refuse("--rename: '%s' is not FROM=TO", text);
    *equals = '\0';
    tensor_rename *r = &out->renames[out->n];
    *r = (tensor_rename){.from = strdup(text), .to = strdup(equals + 1)};
    out->n++;
    return r->from && r->to ? 0 : program_no_memory();
}

int tensor_names_parse(const char *text, tensor_names *out) {
    size_t n = 1;
    if (!text) return 0;
    for (const char *at = text; (at = strchr(at, ',')); at++) n++;
    char *copy = strdup(text), *rest = copy, *one;
    out->renames = calloc(n, sizeof *out->renames);
    int status = copy && out->renames ? 0 : program_no_memory();
    while (status == 0 && (one = strsep(&rest, ","))) status = add_rename(one, out);
    free(copy);
    return status;
}

void tensor_names_free(tensor_names *names) {
    for (size_t i = 0; i < names->n; i++) {
        free(names->renames[i].from);
        free(names->renames[i].to);
    }
    free(names->renames);
    *names = (tensor_names){0};
}

/* Returns the wrapper whose part of a name begins at `at`; MODEL_WRAPPERS if there is none. If
 * `leads` is true, searches only wrappers whose part is at the beginning of all names; otherwise,
 * searches only the other wrappers. */
static size_t wrapper_at(const char *at, bool leads) {
    size_t w = 0;
    while (w < MODEL_WRAPPERS &&
           (model_wrappers[w].leads != leads || !has_start(at, model_wrappers[w].part)))
        w++;
    return w;
}

/* Removes from a name the parts that wrappers add, except for parts with which all names begin. If
 * `found` is not NULL, sets the bit of each wrapper that was found. */
static void unwrap(char *name, unsigned *found) {
    char *to = name;
    for (const char *at = name; *at;) {
        const size_t w = wrapper_at(at, false), dot = strcspn(at, ".");
        const size_t length = dot + (at[dot] == '.');
        if (w < MODEL_WRAPPERS) {
            if (found) *found |= 1u << w;
            at += strlen(model_wrappers[w].part);
            continue;
        }
        memmove(to, at, length);
        to += length;
        at += length;
    }
    *to = '\0';
}

/* The model's names after `unwrap`. */
typedef struct unwrapped_names {
    char **list;
    size_t n;
} unwrapped_names;

static void free_unwrapped(unwrapped_names *u) {
    for (size_t i = 0; i < u->n; i++) free(u->list[i]);
    free(u->list);
}

static int list_unwrapped(const char *const *list, size_t n, tensor_names *names,
                          unwrapped_names *out) {
    *out = (unwrapped_names){.list = calloc(n + 1, sizeof *out->list)};
    if (!out->list) return program_no_memory();
    for (size_t i = 0; i < n; i++) {
        unsigned found = 0;
        char *name = strdup(list[i]);
        if (!name) return program_no_memory();
        unwrap(name, &found);
        out->list[out->n++] = name;
        for (size_t w = 0; w < MODEL_WRAPPERS; w++) names->unwrapped[w] += found >> w & 1;
    }
    return 0;
}

/* Finds the parts of wrappers with which all names begin; there may be several, one after the
 * other. */
static void find_leading(const unwrapped_names *u, tensor_names *names) {
    while (u->n) {
        const size_t w = wrapper_at(u->list[0] + names->leading, true);
        if (w == MODEL_WRAPPERS) return;
        for (size_t i = 1; i < u->n; i++) {
            if (strncmp(u->list[i], u->list[0], names->leading) != 0) return;
            if (!has_start(u->list[i] + names->leading, model_wrappers[w].part)) return;
        }
        names->leading += strlen(model_wrappers[w].part);
        names->unwrapped[w] = u->n;
    }
}

static char *renamed(const tensor_rename *r, const char *name, size_t at) {
    char *out;
    if (asprintf(&out, "%.*s%s%s", (int)at, name, r->to, name + at + strlen(r->from)) < 0)
        return NULL;
    return out;
}

/* Replaces FROM by TO if the name begins with FROM. If FROM begins with a dot, replaces it anywhere
 * in the name. Takes ownership of `name`, which may be NULL. */
static char *apply_rename(const tensor_rename *r, char *name) {
    const char *at = !name ? NULL : *r->from == '.' ? strstr(name, r->from) : name;
    if (!at || !has_start(at, r->from)) return name;
    char *out = renamed(r, name, (size_t)(at - name));
    free(name);
    return out;
}

static char *unwrapped_name(const tensor_names *names, const char *name) {
    char *copy = strdup(name);
    if (!copy || !names->unwraps) return copy;
    unwrap(copy, NULL);
    if (strlen(copy) > names->leading)
        memmove(copy, copy + names->leading, strlen(copy + names->leading) + 1);
    return copy;
}

char *tensor_names_new(const tensor_names *names, const char *name) {
    char *out = unwrapped_name(names, name);
    for (size_t i = 0; i < names->n; i++) out = apply_rename(&names->renames[i], out);
    return out;
}

/* Counts how many of the model's names each --rename changes. */
static int count_renamed(const char *const *list, size_t n, tensor_names *names) {
    for (size_t i = 0; names->n && i < n; i++) {
        char *name = unwrapped_name(names, list[i]);
        for (size_t k = 0; name && k < names->n; k++) {
            const char *from = names->renames[k].from;
            names->renames[k].used +=
                *from == '.' ? strstr(name, from) != NULL : has_start(name, from);
            name = apply_rename(&names->renames[k], name);
        }
        if (!name) return program_no_memory();
        free(name);
    }
    return 0;
}

int tensor_names_find(const char *const *list, size_t n, bool unwraps, tensor_names *names) {
    unwrapped_names u = {0};
    int status = unwraps ? list_unwrapped(list, n, names, &u) : 0;
    if (status == 0 && unwraps) find_leading(&u, names);
    names->unwraps = unwraps;
    free_unwrapped(&u);
    return status ? status : count_renamed(list, n, names);
}

int tensor_names_report(const char *where, const tensor_names *names) {
    for (size_t w = 0; w < MODEL_WRAPPERS; w++)
        if (names->unwrapped[w])
            program_note("%s: a wrapper's %s is left out of the names of %zu tensors", where,
                         model_wrappers[w].part, names->unwrapped[w]);
    for (size_t i = 0; i < names->n; i++)
        if (names->renames[i].used == 0)
            return program_refuse("--rename: no tensor's name %s '%s'",
                                  *names->renames[i].from == '.' ? "contains" : "begins with",
                                  names->renames[i].from);
    return 0;
}

/* Prints at most a dozen lines for each kind of difference, and counts the others. */

enum { MISSING, SURPLUS, OTHER_SHAPE, KINDS };
enum { MOST_LISTED = 12, LINE_BYTES = 640 }; /* per kind; names have at most 256 characters */

/* Differences that are equal except for the layer's number. */
typedef struct check_line {
    char first[LINE_BYTES], like[LINE_BYTES]; /* like: with a star for each number between dots */
    size_t n;
} check_line;

typedef struct check_report {
    const char *where;
    check_line lines[KINDS * MOST_LISTED]; /* in the order of their discovery */
    size_t n, of_kind[KINDS], differences, listed;
} check_report;

static bool is_number(const char *from, const char *text, size_t length) {
    const bool begins = from == text || from[-1] == '.';
    return length > 0 && begins && (from[length] == '.' || from[length] == ' ');
}

static void make_like(const char *text, char *out) {
    for (const char *at = text; *at;) {
        const size_t digits = strspn(at, "0123456789");
        if (is_number(at, text, digits)) {
            *out++ = '*';
            at += digits;
        } else {
            *out++ = *at++;
        }
    }
    *out = '\0';
}

static void count_line(check_report *r, int kind, const char *text) {
    char like[LINE_BYTES];
    size_t i = 0;
    make_like(text, like);
    while (i < r->n && strcmp(r->lines[i].like, like) != 0) i++;
    r->differences++;
    if (i == r->n) {
        if (r->of_kind[kind] == MOST_LISTED) return;
        r->of_kind[kind]++;
        strcpy(r->lines[r->n].first, text);
        strcpy(r->lines[r->n++].like, like);
    }
    r->lines[i].n++;
    r->listed++;
}

static void note_difference(void *to, weights_difference difference) {
    const model_param *param = difference.param;
    const dcp_tensor *tensor = difference.tensor;
    char asked[160], there[160], text[LINE_BYTES];
    if (param) model_weights_shape_text(param->ndim, param->shape, asked, sizeof asked);
    if (tensor) model_weights_shape_text(tensor->ndim, tensor->shape, there, sizeof there);
    if (!tensor)
        snprintf(text, sizeof text, "%.256s %s is missing, but config.json requires it",
                 param->name, asked);
    else if (!param)
        snprintf(text, sizeof text, "%.256s %s is surplus: config.json requires no such tensor",
                 tensor->path, there);
    else
        snprintf(text, sizeof text, "%.256s is %s, but config.json requires %s", tensor->path,
                 there, asked);
    count_line(to, !tensor ? MISSING : !param ? SURPLUS : OTHER_SHAPE, text);
}

static void print_report(const check_report *r) {
    for (size_t i = 0; i < r->n; i++) {
        const check_line *line = &r->lines[i];
        if (line->n == 1)
            program_note("%s: %s", r->where, line->first);
        else
            program_note("%s: %s (%zu tensors)", r->where, line->like, line->n);
    }
    if (r->differences > r->listed)
        program_note("%s: and %zu more differences", r->where, r->differences - r->listed);
}

static const model_param **list_params(const model *m, size_t *n) {
    *n = 0;
    for (size_t u = 0; u < model_units(m); u++) *n += model_unit_params(m, u);
    const model_param **params = calloc(*n + 1, sizeof *params);
    size_t at = 0;
    for (size_t u = 0; params && u < model_units(m); u++)
        for (size_t i = 0; i < model_unit_params(m, u); i++)
            params[at++] = model_unit_param(m, u, i);
    return params;
}

static void note_fresh(const weights_query *asked, const model_param *const *params, size_t n,
                       const found_tensors *found) {
    for (size_t i = 0; i < n; i++)
        if (params[i]->fresh && !model_weights_find_param(found, params[i]))
            program_note("%s: has no %s: %s will initialize it", found->where, params[i]->name,
                         asked->by_training ? "dcp-train" : "transformers");
}

static void find_copy_of_tied(const model_param *const *params, size_t n,
                              const found_tensors *found, weights_found *out) {
    for (size_t i = 0; i < n; i++)
        if (params[i]->tied) out->tied = model_weights_find_param(found, params[i]);
    if (out->tied) out->copy = model_weights_find(found, WEIGHTS_COPY);
}

static int compare_config(const weights_query *asked, const model *m, weights_found *out) {
    dcp_error err = {0};
    size_t n;
    check_report r = {.where = asked->where};
    const model_param **params = list_params(m, &n);
    const found_tensors found = {.where = asked->where,
                                 .prefix = "",
                                 .list = asked->list,
                                 .n = asked->n,
                                 .weights_only = true};
    int status = params ? 0 : program_no_memory();
    if (status == 0 && model_weights_compare(params, n, &found, note_difference, &r, &err))
        status = program_report(&err);
    if (status == 0) note_fresh(asked, params, n, &found);
    if (status == 0) find_copy_of_tied(params, n, &found, out);
    free(params);
    if (status == 0) print_report(&r);
    out->differences = r.differences;
    return status;
}

/* Returns the message, without "model config: " at its beginning. */
static const char *message(const dcp_error *err) {
    static const char whose[] = "model config: ";
    return err->message + (strncmp(err->message, whose, strlen(whose)) ? 0 : strlen(whose));
}

static bool is_dropout(const char *key) {
    static const char *const ends[] = {"drop", "dropout", "dropout_prob"};
    const size_t n = strlen(key);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);
        if (n >= m && strcmp(key + n - m, ends[i]) == 0) return true;
    }
    return false;
}

/* Returns a copy of the configuration in which dropout is 0. dcp-train refuses dropout, but no
 * tensor depends on it. NULL if out of memory. */
static json_t *without_dropout(const json_t *config) {
    json_t *copy = json_copy((json_t *)config);
    const char *key;
    json_t *value;
    json_object_foreach(copy, key, value) if (is_dropout(key))
        json_object_set_new(copy, key, json_real(0.0));
    return copy;
}

/* Makes the description of the model. Returns NULL if dcp-train does not know the model. */
static model *describe(const weights_query *asked, weights_found *found) {
    dcp_error err = {0}, still = {0};
    model *m = NULL;
    if (!model_describe(asked->config, &m, &err)) return m;
    json_t *bare = without_dropout(asked->config);
    model_describe(bare, &m, &still);
    json_decref(bare);
    if (asked->by_training)
        program_note("%s/config.json: %s: dcp-train would refuse this configuration%s",
                     asked->where, message(&err),
                     m ? "" : "; the tensors are not compared with it");
    if (!m) snprintf(found->unknown, sizeof found->unknown, "%.250s", message(&err));
    return m;
}

int weights_report_print(const weights_query *asked, weights_found *found) {
    *found = (weights_found){0};
    model *m = describe(asked, found);
    const int status = m ? compare_config(asked, m, found) : 0;
    model_free_described(m);
    return status;
}
