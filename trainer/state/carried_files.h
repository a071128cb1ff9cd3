/* The files that checkpoints carry in the section /files, such as a tokenizer's; the state holds
 * this rank's part of each. Also warnings about files in a Hugging Face folder that a run does not
 * use. */
#pragma once

#include "config/config.h"
#include "models/sample.h"
#include "state/train_state.h"

/* The total size of this rank's parts of the files, in bytes. */
uint64_t state_files_bytes(const train_state *s);

/* Not collective. Adds the file `name` of `folder`, the folder that the key init names, to the
 * state. Does nothing if the folder has no such file. */
int state_files_keep_init(train_state *s, const char *folder, const char *name, dcp_error *err);

/* Collective. Gathers a whole file on every rank. *text ends with a NUL byte; the caller frees
 * it. */
int state_files_gather(const carried_file *file, MPI_Comm comm, char **text, uint64_t *bytes,
                       dcp_error *err);

/* The key data.tokenizer names the files of a tokenizer. Checkpoints carry these files, and exports
 * restore them. */

/* Not collective. Checks that a tokenizer's files can be read. path: a Hugging Face folder, of
 * which only the tokenizer's files are used, or one file of a tokenizer. DCP_ERR_ARG: there is no
 * such file, or one cannot be read. */
int state_tokenizer_check(const char *path, dcp_error *err);

/* Not collective. Adds a tokenizer's files to the state, unless the state was loaded from a
 * checkpoint with a tokenizer. */
int state_tokenizer_keep(train_state *s, const char *path, dcp_error *err);

/* Collective. Reads the normalization of images from the state's preprocessor_config.json. If there
 * is no such file, or if it requests no normalization, out->channels is 0; otherwise out->channels
 * is `channels`. DCP_ERR_ARG: a value in the file is invalid. */
int state_preprocessor_read(const train_state *s, MPI_Comm comm, uint64_t channels,
                            sample_normalization *out, dcp_error *err);

/* Warnings about contents of a Hugging Face folder that the run does not use. */

/* Warns if a run starts randomly although `model` is a folder that contains weights. */
void state_unused_weights_warn(const config *c, int rank);

/* Warns if data.type is text, so tokens are bytes, although the vocabulary is larger than 256 and a
 * tokenizer exists: the one that data.tokenizer names, or one in the folder of init or model. */
void state_unused_tokenizer_warn(const config *c, uint64_t vocabulary, int rank);
