/* Files that checkpoints carry in the section /files, such as a tokenizer's, and warnings about
 * files of a folder that a run does not use. The state holds this rank's part of each file. */
#pragma once

#include "config/config.h"
#include "models/sample.h"
#include "state/train_state.h"

/* The total size of this rank's parts of the files, in bytes. */
uint64_t state_files_bytes(const train_state *s);

/* Not collective. Adds a file of init's folder to the state. Does nothing if the folder has no such
 * file. */
int state_files_keep_init(train_state *s, const char *folder, const char *name, dcp_error *err);

/* Collective. Gathers a whole file on every rank. *text ends with a 0; the caller frees it. */
int state_files_gather(const kept_file *file, MPI_Comm comm, char **text, uint64_t *bytes,
                       dcp_error *err);

/* data.tokenizer: the files of a tokenizer, which checkpoints carry and exports restore. */

/* Not collective. Checks a tokenizer. path: a Hugging Face folder, of which only the tokenizer's
 * files count, or one such file. DCP_ERR_ARG: there is none, or one cannot be read. */
int state_tokenizer_check(const char *path, dcp_error *err);

/* Not collective. Adds the files to the state, unless the checkpoint that it was loaded from
 * already had a tokenizer. */
int state_tokenizer_keep(train_state *s, const char *path, dcp_error *err);

/* Collective. Reads from preprocessor_config.json of a Hugging Face folder how images become
 * numbers. If there is no such file, or it does not normalize, out->channels is 0; otherwise it is
 * the model's. DCP_ERR_ARG: a value in the file is invalid. */
int state_preprocessor_read(const train_state *s, MPI_Comm comm, uint64_t channels,
                            sample_normalization *out, dcp_error *err);

/* Warnings about contents of a Hugging Face folder that the run does not use. */

/* For a random start: warns if `model` is a folder that contains weights. */
void state_unused_weights_warn(const config *c, int rank);

/* For data that are bytes: warns if a folder has a tokenizer and the vocabulary is larger than the
 * 256 bytes. */
void state_unused_tokenizer_warn(const config *c, uint64_t vocabulary, int rank);
