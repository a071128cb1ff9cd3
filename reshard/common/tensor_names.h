/* The names of a model's tensors in an export or import, and how they compare with those that its
 * config.json requires. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "programs/model_files.h"

#include <dcp/tensor.h>

/* The names that tensors get in an export or import: without the parts that wrappers of modules
 * add, and renamed as --rename requests. */

typedef struct tensor_rename {
    char *from, *to;
    size_t used; /* how many of the model's names it changed */
} tensor_rename;

typedef struct tensor_names {
    tensor_rename *renames;
    size_t n;
    int unwraps;    /* whether wrappers' parts are removed from names */
    size_t leading; /* then the number of bytes with which all names begin, and which are dropped */
    size_t unwrapped[MODEL_WRAPPERS]; /* how many of the model's names lost a wrapper's part, by
                                         kind */
} tensor_names;

/* Functions return exit statuses; they have reported failures. */

/* Parses `text`, which is NULL or "FROM=TO", or several of these separated by commas. */
int tensor_names_parse(const char *text, tensor_names *out);
void tensor_names_free(tensor_names *names);

/* With `unwraps`, finds the wrappers' parts in the model's n names. */
int tensor_names_find(const char *const *list, size_t n, int unwraps, tensor_names *names);
/* Reports what is removed from names; `where` begins the message. Refuses a FROM that no name
 * has. */
int tensor_names_tell(const char *where, const tensor_names *names);

/* The new name of a tensor of the model, or of the tensor to which a moment belongs. malloc'd; NULL
 * if out of memory. */
char *tensor_names_new(const tensor_names *names, const char *name);

/* Compares a model's tensors with those that its config.json requires, so that a mismatch is found
 * when a folder is imported or written, not when the model is trained or loaded. */

typedef struct weights_asked {
    const char *where; /* begins each line: a folder, a step */
    const json_t *config;
    const dcp_tensor *const *list; /* in ascending order; their paths are names */
    size_t n;
    int by_training; /* dcp-train will load the tensors, so also report what it refuses in
                        config.json; otherwise transformers will load them */
} weights_asked;

typedef struct weights_found {
    size_t differences;
    /* A second tensor of weights that config.json ties, and the tensor that it is a copy of; NULL
     * if there is none. Does not compare their contents. */
    const dcp_tensor *copy, *tied;
    char unknown[256]; /* why config.json was not compared with anything: dcp-train does not accept
                          it (ignoring dropout); "" if it was compared */
} weights_found;

/* Prints a line for each difference: a tensor that is missing, surplus or of another shape.
 * Differences that are alike in all layers get one line. Deviations that dcp-train tolerates, a
 * missing classifier or constants of old files, do not count as differences. Fails only if out of
 * memory. Returns an exit status. */
int weights_report_print(const weights_asked *asked, weights_found *found);
