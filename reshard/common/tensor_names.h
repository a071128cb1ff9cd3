/* The names of a model's tensors in an export or import, and how they compare with those that its
 * config.json asks for. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "programs/model_files.h"

#include <dcp/tensor.h>

/* The names that tensors get in an export or import: without what wrappers of modules put into
 * them, and as --rename asks for. */

typedef struct tensor_rename {
    char *from, *to;
    size_t used; /* names of the model that it changed */
} tensor_rename;

typedef struct tensor_names {
    tensor_rename *renames;
    size_t n;
    int unwraps;                      /* names lose what wrappers put there */
    size_t leading;                   /* bytes that begin all names then, and are left away */
    size_t unwrapped[MODEL_WRAPPERS]; /* names of the model that lost it, by kind */
} tensor_names;

/* Functions return exit statuses, having said what failed. */

/* `text`, or NULL: "FROM=TO", or several with commas between them. */
int tensor_names_parse(const char *text, tensor_names *out);
void tensor_names_free(tensor_names *names);

/* Of the model's n names: where `unwraps` is set, finds what wrappers put into them. */
int tensor_names_find(const char *const *list, size_t n, int unwraps, tensor_names *names);
/* Says what names lose, `where`; refuses a FROM that no name has. */
int tensor_names_tell(const char *where, const tensor_names *names);

/* The new name of a tensor of the model, or of what a moment is of. malloc'd; NULL: out of memory.
 */
char *tensor_names_new(const tensor_names *names, const char *name);

/* A model's tensors against those that its config.json asks for: what does not fit is found when a
 * folder is imported or written, not when it is trained or loaded. */

typedef struct weights_asked {
    const char *where; /* begins each line: a folder, a step */
    const json_t *config;
    const dcp_tensor *const *list; /* their paths are names; ascending */
    size_t n;
    int by_training; /* dcp-train will load them: what it refuses in config.json is told, too.
                      * Otherwise transformers will. */
} weights_asked;

typedef struct weights_found {
    size_t differences;
    /* A second tensor of weights that config.json ties, and the one that they are; NULL: none.
     * Whether they are the same is not looked at. */
    const dcp_tensor *copy, *tied;
    char unknown[256]; /* why config.json was compared with nothing, as dcp-train does not take it
                        * (dropout aside); "": it was compared */
} weights_found;

/* Prints a line for each difference: a tensor that is missing, surplus or of another shape, those
 * alike in all layers once. What dcp-train lets pass is none: a missing classifier, constants of
 * old files. An exit status: of memory alone. */
int weights_report_print(const weights_asked *asked, weights_found *found);
