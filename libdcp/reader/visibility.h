/* Visibility: which ranks see which files of a step. If directories are private to nodes, ranks see
 * the same folder or different ones, and possibly no rank sees all files of a step. */
#pragma once

#include <limits.h>

#include "comm/comm.h"
#include "dcp/save.h"

typedef struct reader_visibility {
    char folder[PATH_MAX]; /* path of the step's folder on this rank, whether or not it exists */
    dcp_layout layout;
    size_t n;            /* number of files of the step */
    uint64_t *readers;   /* for each file, the rank that reads it; the same on all ranks */
    unsigned char *seen; /* for each file, 1 if this rank sees it */
    uint64_t shards;     /* used by the search */
} reader_visibility;

/* Collective. Finds the step that dcp_checkpoint_open_private opens, where each rank passes its own
 * path, and decides which rank reads which of its files. Must be freed whether or not it succeeds.
 * Returns DCP_ERR_CORRUPT if no rank sees some of its files, DCP_ERR_NOT_FOUND if no directory has
 * a step of which all files are seen. */
int reader_visibility_find(dcp_comm *comm, const char *own_path, reader_visibility *out,
                           dcp_error *err);

void reader_visibility_free(reader_visibility *v);
