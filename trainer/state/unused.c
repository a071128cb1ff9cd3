#include "state/unused.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/model_files.h"
#include "ranks/say.h"

enum { BYTES = 256 };

/* The path that `model` was given as, or NULL. */
static const char *model_path(const config *c) {
    return json_string_value(json_object_get(c->tree, "model"));
}

static int holds(const char *folder, const char *name) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

void state_unused_weights_warn(const config *c, int rank) {
    const char *folder = model_path(c);
    if (rank == 0 && folder &&
        (holds(folder, "model.safetensors") || holds(folder, "model.safetensors.index.json")))
        ranks_warn(rank,
                   "model: %s holds weights, which are not used: set init=%s to start from them",
                   folder, folder);
}

static int is_tokenizer(const struct dirent *entry) {
    return model_files_is_tokenizer(entry->d_name);
}

static int has_tokenizer(const char *folder) {
    struct dirent **entries;
    const int n = folder ? scandir(folder, &entries, is_tokenizer, NULL) : -1;
    for (int i = 0; i < n; i++) free(entries[i]);
    if (n >= 0) free(entries);
    return n > 0;
}

void state_unused_tokenizer_warn(const config *c, uint64_t vocabulary, int rank) {
    const char *model = model_path(c), *from = c->tokenizer; /* which may be a file */
    if (rank != 0 || strcmp(c->data_type, "text") != 0 || vocabulary <= BYTES) return;
    if (!from && has_tokenizer(c->init)) from = c->init;
    if (!from && has_tokenizer(model)) from = model;
    if (from)
        ranks_warn(rank,
                   "data.type: text feeds bytes as token ids, but %s has a tokenizer: make token "
                   "ids with examples/tokenize_text.py and set data.type=tokens",
                   from);
}
