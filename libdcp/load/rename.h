/* Renaming maps (dcp_rename in dcp/checkpoint.h). */
#ifndef DCP_LOAD_RENAME_H
#define DCP_LOAD_RENAME_H

#include "dcp/checkpoint.h"

typedef char path_text[DCP_MAX_PATH + 1];

/* Whether the pairs are well-formed: DCP_ERR_ARG names the first that isn't. */
int rename_check(const dcp_rename *pairs, size_t n, dcp_error *err);

/* The name in the checkpoint of the state's tensor `path`. DCP_ERR_ARG: no tensor can have it. */
int rename_to_stored(const dcp_rename *pairs, size_t n, const char *path, path_text out,
                     dcp_error *err);

/* The name that this pair turns into `stored`; 0: there is none. */
int rename_from_stored(const dcp_rename *pair, const char *stored, path_text out);

#endif
