/* Tensors counted by module, as the dots and slashes in their names give them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/tensor.h>

#define MODULES_DEPTH 16 /* at most */

typedef struct inspect_module {
    const char *path; /* of a tensor in it; borrowed */
    size_t length;    /* of the module's own in that */
    size_t own;       /* where the last part of its name begins */
    unsigned depth;   /* 1: below the section */
    uint64_t tensors, elems, bytes;
} inspect_module;

typedef struct inspect_modules {
    inspect_module *list; /* each before those in it, in the tensors' order */
    size_t n;
    size_t open[MODULES_DEPTH]; /* those that the last tensor is in */
    unsigned depth, most;       /* how many; the depth that was asked for */
} inspect_modules;

/* Adds a tensor, "/section/a.b.weight", to the modules a and a.b; tensors come ascending by path. A
 * tensor without a module is one itself. 0, or -1: out of memory. */
int inspect_modules_add(inspect_modules *m, const dcp_tensor *tensor);
void inspect_modules_free(inspect_modules *m);

/* The kind of a tensor: its section, or for the optimizer's what comes after that: "exp_avg". */
const char *inspect_modules_kind(const char *path, size_t *length);
