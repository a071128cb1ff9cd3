/* What dcp-inspect stat finds out: sizes from the tables, numbers from the tensors. */
#ifndef RESHARD_SUMMARY_H
#define RESHARD_SUMMARY_H

#include <stddef.h>

#include <dcp/inspect.h>

#include "common/launch.h"
#include "inspect/histogram.h"
#include "inspect/modules.h"
#include "inspect/stats.h"

enum { SUMMARY_KINDS = 16 }; /* further ones are counted together */

typedef struct kind {
    char name[40];
    size_t tensors;
    uint64_t elems, bytes;
    stats stats;
    histogram histogram;
} kind;

typedef struct summary {
    dcp_checkpoint *ckpt;
    unsigned char *take; /* [tensors] that are asked for */
    unsigned char *kind_of;
    stats *stats; /* [tensors] of those that were read */
    kind kinds[SUMMARY_KINDS];
    size_t n_kinds;
    modules modules;       /* of the parameters */
    uint64_t tensor_bytes; /* of all tensors, asked for or not */
    int measured;
} summary;

/* Tensors that match the globs, or all; `depth` of the modules. Returns an exit status, as the
 * next.
 */
int summary_make(dcp_checkpoint *ckpt, char *const *globs, size_t n_globs, unsigned depth,
                 summary *out);
/* Collective: reads the tensors, of /files only what a glob names. The outcome is on rank 0. */
int summary_measure(const launch *job, summary *s, int with_files);
void summary_free(summary *s);

#endif
