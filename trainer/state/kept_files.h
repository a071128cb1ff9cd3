/* Files that checkpoints carry in the section /files, and files of a folder that a run does not
 * use. */
#pragma once

#include "config/config.h"
#include "models/sample.h"
#include "state/train_state.h"

/* Files that checkpoints carry in the section /files, such as a tokenizer's: this rank's part of
 * each is in the state. */

/* Of this rank's parts of all of them. */
uint64_t state_files_bytes(const train_state *s);

/* Not collective. The same of a file of init's folder; nothing where the folder has none. */
int state_files_keep_init(train_state *s, const char *folder, const char *name, dcp_error *err);

/* Collective: all of a file, on every rank; *text, which ends with a 0, is the caller's to free. */
int state_files_gather(const kept_file *file, MPI_Comm comm, char **text, uint64_t *bytes,
                       dcp_error *err);

/* data.tokenizer: the files of a tokenizer that checkpoints carry, and exports bring back. */

/* Not collective. `path`: a Hugging Face folder, of which the tokenizer's files count, or one such
 * file. DCP_ERR_ARG: there is none, or one cannot be read. */
int state_tokenizer_check(const char *path, dcp_error *err);

/* Not collective. The files become the state's, unless it has a tokenizer already, of the
 * checkpoint that it was loaded from. */
int state_tokenizer_keep(train_state *s, const char *path, dcp_error *err);

/* How images become numbers, as preprocessor_config.json of a Hugging Face folder says. */

/* Collective. Without such a file, or where it does not normalize, out->channels is 0; else it is
 * the model's. DCP_ERR_ARG: what in the file is no such thing. */
int state_preprocessor_read(const train_state *s, MPI_Comm comm, uint64_t channels,
                            sample_normalization *out, dcp_error *err);

/* What a Hugging Face folder holds and a run that was given the folder does not use. */

/* Where a run starts at random: warns where `model` is a folder that holds weights. */
void state_unused_weights_warn(const config *c, int rank);

/* Where data are bytes: warns where a folder has a tokenizer, and the vocabulary has more than
 * bytes. */
void state_unused_tokenizer_warn(const config *c, uint64_t vocabulary, int rank);
