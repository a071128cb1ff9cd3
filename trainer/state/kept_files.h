/* Files that checkpoints carry in the section /files, such as a tokenizer's: this rank's part of
 * each is in the state. */
#pragma once

#include "state/train_state.h"

/* The state's file of that name, or NULL. */
const kept_file *state_files_find(const train_state *s, const char *name);

/* Of this rank's parts of all of them. */
uint64_t state_files_bytes(const train_state *s);

/* Not collective. One more file of the state, which lies at `path`. DCP_ERR_ARG: it cannot be read;
 * messages begin with the key. */
int state_files_keep(train_state *s, const char *key, const char *path, const char *name,
                     dcp_error *err);

/* Not collective. The same of a file of init's folder; nothing where the folder has none. */
int state_files_keep_init(train_state *s, const char *folder, const char *name, dcp_error *err);

/* Collective: all of a file, on every rank; *text, which ends with a 0, is the caller's to free. */
int state_files_gather(const kept_file *file, MPI_Comm comm, char **text, uint64_t *bytes,
                       dcp_error *err);
