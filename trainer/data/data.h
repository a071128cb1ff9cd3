/* Training samples. Samples are numbered globally through all epochs, and sample g is a function of
 * the data, the seed and g alone: never of ranks or of what was read before. Of several sources
 * each DATA_CYCLE samples have as many of each as the weights say, in an order of their own, and
 * each source goes through its own epochs. */
#pragma once

#include <stdint.h>

#include "data/source.h"

enum { DATA_CYCLE = 1000 };

typedef struct data data;

/* Not collective. DCP_ERR_NOT_FOUND, DCP_ERR_ARG: what is wrong with path or content, or the data
 * is of another kind than the model takes. */
int data_open(const data_options *options, data **out, dcp_error *err);
void data_close(data *d);

/* From now on bytes of images become numbers like that. It changes no fingerprint. */
void data_normalize(data *d, const sample_normalization *how);

/* The error `why` of data whose path another key names: messages begin with data.path, and then
 * with that. Returns `status`. */
int data_blame(const char *key, int status, const dcp_error *why, dcp_error *err);

/* Samples of an epoch; of several sources those of all together. */
uint64_t data_samples(const data *d);
/* What files of text or ids hold, of all sources together. */
void data_files_told(const data *d, data_contents *out);
/* Of packed samples: how many records they hold, and these records' share of their tokens. */
void data_packed(const data *d, uint64_t *records, double *share);
/* A checksum of the number of samples and of what is in them, however files hold it: of all, or of
 * a large data set of a few hundred that are spread over it. Where it differs, so do the samples.
 */
uint64_t data_fingerprint(const data *d);

/* Samples first ... first + n - 1 into the memory that `out` points to, and how many of their
 * targets count: counted[losses]. */
int data_read(data *d, uint64_t seed, uint64_t first, uint64_t n, const sample_batch *out,
              uint64_t *counted, dcp_error *err);

/* Reads samples `first` ... first + n - 1 and keeps nothing: what is wrong with one is an error.
 * Adds how many of their targets count to counted[losses]. */
int data_check(data *d, uint64_t first, uint64_t n, uint64_t *counted, dcp_error *err);
