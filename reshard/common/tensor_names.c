/* Wrappers of PyTorch put a part into the names of all that they hold: torch.compile "_orig_mod",
 * FSDP and activation checkpointing theirs, each wherever a module was wrapped; DDP and DeepSpeed
 * "module", and PEFT "base_model.model", before all names of a model. The latter are words that a
 * model may use itself, so they count as a wrapper's only where every name begins with them. */
#include "common/tensor_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/program.h"

static const struct {
    const char *part;
    int leads; /* only as the beginning of all names */
} wrappers[TENSOR_WRAPPERS] = {
    {"_orig_mod.", 0},   {"_fsdp_wrapped_module.", 0},
    {"_fpw_module.", 0}, {"_checkpoint_wrapped_module.", 0},
    {"base_layer.", 0}, /* PEFT's, around a layer that has an adapter */
    {"module.", 1},      {"base_model.model.", 1},
};

static int has_start(const char *text, const char *start) {
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

/* The wrapper whose part begins at `at`; TENSOR_WRAPPERS: none. */
static size_t wrapper_at(const char *at, int leads) {
    size_t w = 0;
    while (w < TENSOR_WRAPPERS && (wrappers[w].leads != leads || !has_start(at, wrappers[w].part)))
        w++;
    return w;
}

/* Takes out the parts that stand anywhere; `found`, where it is not NULL, gets those met. */
static void unwrap(char *name, unsigned *found) {
    char *to = name;
    for (const char *at = name; *at;) {
        const size_t w = wrapper_at(at, 0), dot = strcspn(at, ".");
        const size_t length = dot + (at[dot] == '.');
        if (w < TENSOR_WRAPPERS) {
            if (found) *found |= 1u << w;
            at += strlen(wrappers[w].part);
            continue;
        }
        memmove(to, at, length);
        to += length;
        at += length;
    }
    *to = '\0';
}

/* The model's names, without what stands anywhere in them. */
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
        for (size_t w = 0; w < TENSOR_WRAPPERS; w++) names->unwrapped[w] += found >> w & 1;
    }
    return 0;
}

/* What all names begin with, one wrapper within another. */
static void find_leading(const unwrapped_names *u, tensor_names *names) {
    while (u->n) {
        const size_t w = wrapper_at(u->list[0] + names->leading, 1);
        if (w == TENSOR_WRAPPERS) return;
        for (size_t i = 1; i < u->n; i++) {
            if (strncmp(u->list[i], u->list[0], names->leading) != 0) return;
            if (!has_start(u->list[i] + names->leading, wrappers[w].part)) return;
        }
        names->leading += strlen(wrappers[w].part);
        names->unwrapped[w] = u->n;
    }
}

static char *renamed(const tensor_rename *r, const char *name, size_t at) {
    char *out;
    if (asprintf(&out, "%.*s%s%s", (int)at, name, r->to, name + at + strlen(r->from)) < 0)
        return NULL;
    return out;
}

/* FROM begins the name, or where its own first character is a dot stands anywhere in it. Takes
 * `name`, which may be NULL. */
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

/* How many names of the model each --rename changes. */
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

int tensor_names_find(const char *const *list, size_t n, int unwraps, tensor_names *names) {
    unwrapped_names u = {0};
    int status = unwraps ? list_unwrapped(list, n, names, &u) : 0;
    if (status == 0 && unwraps) find_leading(&u, names);
    names->unwraps = unwraps;
    free_unwrapped(&u);
    return status ? status : count_renamed(list, n, names);
}

int tensor_names_tell(const char *where, const tensor_names *names) {
    for (size_t w = 0; w < TENSOR_WRAPPERS; w++)
        if (names->unwrapped[w])
            program_note("%s: a wrapper's %s is left out of the names of %zu tensors", where,
                         wrappers[w].part, names->unwrapped[w]);
    for (size_t i = 0; i < names->n; i++)
        if (names->renames[i].used == 0)
            return program_refuse("--rename: no tensor's name %s '%s'",
                                  *names->renames[i].from == '.' ? "has" : "begins with",
                                  names->renames[i].from);
    return 0;
}
