/* The names of a model's tensors in an export or import, and their comparison with the names that
 * config.json requires. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "programs/model_files.h"

#include <dcp/tensor.h>

/* The names of tensors in an export or import: without the parts that wrappers of modules add, and
 * renamed as --rename requests. */

typedef struct tensor_rename {
    char *from, *to;
    size_t used; /* how many of the model's names this rename changed */
} tensor_rename;

typedef struct tensor_names {
    tensor_rename *renames;
    size_t n;
    bool unwraps;   /* parts that wrappers add are removed from names */
    size_t leading; /* if `unwraps`: the bytes that are removed at the beginning of each name */
    size_t unwrapped[MODEL_WRAPPERS]; /* for each wrapper, the number of the model's names from
                                       * which its part was removed */
} tensor_names;

/* Functions return exit statuses, and report failures themselves. */

/* Parses `text`, which is NULL, "FROM=TO", or several of these separated by commas. */
int tensor_names_parse(const char *text, tensor_names *out);
void tensor_names_free(tensor_names *names);

/* With `unwraps`, finds the parts of wrappers in the model's n names. Counts the names that each
 * --rename changes. */
int tensor_names_find(const char *const *list, size_t n, bool unwraps, tensor_names *names);
/* Reports which parts are removed from names; the message begins with `where`. Fails if a --rename
 * changes no name. */
int tensor_names_report(const char *where, const tensor_names *names);

/* Returns the new name of a tensor of the model, or of the tensor to which a moment belongs. The
 * caller frees it; NULL if out of memory. */
char *tensor_names_new(const tensor_names *names, const char *name);

/* Compares a model's tensors with the tensors that its config.json requires. So a mismatch is found
 * when a folder is imported or written, not only when the model is trained or loaded. */

typedef struct weights_query {
    const char *where; /* the beginning of each line: a folder or a step */
    const json_t *config;
    const dcp_tensor *const *list; /* in ascending order; their paths are names */
    size_t n;
    bool by_training; /* dcp-train will load the tensors, so values in config.json that it refuses
                       * are reported, too; false: transformers will load them */
} weights_query;

typedef struct weights_found {
    size_t differences;
    /* If config.json ties weights: `tied` is the tensor that it ties, and `copy` is a second tensor
     * for the same weights, whose contents were not compared with the contents of `tied`. Each is
     * NULL if it does not exist. */
    const dcp_tensor *copy, *tied;
    char unknown[256]; /* why nothing was compared with config.json: the reason why dcp-train would
                        * not accept it even if its dropout were 0; "" if it was compared */
} weights_found;

/* Prints a line for each difference: a tensor that is missing, surplus or of another shape.
 * Differences that are alike in all layers get one line. Two things that dcp-train tolerates do not
 * count as differences: a missing classifier, and surplus tensors such as constants of old files.
 * Fails only if out of memory. Returns an exit status. */
int weights_report_print(const weights_query *asked, weights_found *found);
