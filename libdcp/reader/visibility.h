/* Visibility: which ranks see which files of a step. Where directories are private to a node, ranks
 * see the same folder or different ones, and no rank may see all files of a step. */
#pragma once

#include <limits.h>

#include "comm/comm.h"
#include "dcp/save.h"

typedef struct reader_visibility {
    char folder[PATH_MAX]; /* the step's on this rank, whether it is there or not */
    dcp_layout layout;
    size_t n;            /* files of the step */
    uint64_t *readers;   /* of each file, the rank that reads it: the same on all ranks */
    unsigned char *seen; /* of each file, 1 where this rank sees it */
    uint64_t shards;     /* used by the search */
} reader_visibility;

/* Collective. Finds the step that dcp_checkpoint_open_private means, each rank with its own path,
 * and who reads which of its files. To be freed in either case. DCP_ERR_CORRUPT: no rank sees some
 * of its files; DCP_ERR_NOT_FOUND: no directory has a step all of whose files are seen. */
int reader_visibility_find(dcp_comm *comm, const char *own_path, reader_visibility *out,
                           dcp_error *err);

void reader_visibility_free(reader_visibility *v);
