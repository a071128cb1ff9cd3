/* Visibility: which ranks see which files of a step. In a private store, ranks of different nodes
 * see different folders, and possibly no rank sees all files of a step. */
#pragma once

#include <limits.h>

#include "comm/comm.h"
#include "dcp/save.h"

typedef struct reader_visibility {
    char folder[PATH_MAX]; /* path of the step's folder on this rank, whether or not it exists */
    dcp_layout layout;
    size_t n;               /* number of files of the step */
    uint64_t *readers;      /* for each file, the rank that reads it; the same on all ranks */
    unsigned char *visible; /* for each file, 1 if this rank sees it */
    uint64_t shards;        /* the number of shards that the search is trying */
} reader_visibility;

/* Collective. Finds the step that dcp_checkpoint_open_private opens, and decides which rank reads
 * each of its files. Each rank passes its own path. *out must be freed whether or not the call
 * succeeds. Returns DCP_ERR_CORRUPT if a step's folder was given and one of its files is seen by no
 * rank. Returns DCP_ERR_NOT_FOUND if directories were given and this is the case for each of their
 * steps. */
int reader_visibility_find(dcp_comm *comm, const char *own_path, reader_visibility *out,
                           dcp_error *err);

void reader_visibility_free(reader_visibility *v);
