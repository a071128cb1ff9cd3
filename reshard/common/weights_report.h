/* A model's tensors against those that its config.json asks for: what does not fit is found when a
 * folder is imported or written, not when it is trained or loaded. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include <dcp/tensor.h>

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
