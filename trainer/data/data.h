/* Training samples. They are numbered globally through all epochs, and sample g depends only on the
 * data, the seed and g: never on ranks or on what was read before. With several sources, each group
 * of DATA_CYCLE samples contains as many samples of each source as the weights require, in an order
 * that differs between groups. Each source has its own epochs. */
#pragma once

#include <stdint.h>

#include "data/source.h"

enum { DATA_CYCLE = 1000 };

typedef struct data data;

/* Not collective. Returns DCP_ERR_NOT_FOUND if no file is found, or DCP_ERR_ARG if path or content
 * is wrong, or if the model does not accept this kind of data. */
int data_open(const data_options *options, data **out, dcp_error *err);
void data_close(data *d);

/* Selects how bytes of images are converted to numbers. Does not change fingerprints. */
void data_normalize(data *d, const sample_normalization *how);

/* Reports the error `why` about data whose path is given by `key`: puts `key` in front of the
 * message, in place of data.path if the message begins with that. Returns `status`. */
int data_fail_for_key(const char *key, int status, const dcp_error *why, dcp_error *err);

/* The number of samples per epoch, summed over all sources. */
uint64_t data_samples(const data *d);
/* Describes the files of text or ids of all sources; their number and their bytes are added up. */
void data_files_describe(const data *d, data_contents *out);
/* For packed samples: the number of records in them, and the share of the samples' positions that
 * records fill. */
void data_packed(const data *d, uint64_t *records, double *share);
/* A checksum of the number of samples and of their contents, regardless of how files store them. It
 * covers all samples, or a few hundred that are spread over a large data set. If the checksums of
 * two sets of data differ, so do their samples. */
uint64_t data_fingerprint(const data *d);

/* Reads samples first ... first + n - 1 into the memory that `out` points to. counted[losses]
 * receives, for each loss, how many of the samples' targets count. */
int data_read(data *d, uint64_t seed, uint64_t first, uint64_t n, const sample_batch *out,
              uint64_t *counted, dcp_error *err);

/* Reads samples `first` ... first + n - 1 and discards them: returns an error if one is invalid.
 * Adds to counted[losses], for each loss, how many of the samples' targets count. */
int data_check(data *d, uint64_t first, uint64_t n, uint64_t *counted, dcp_error *err);
