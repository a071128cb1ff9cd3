/* Samples by global number: sample g is number g % samples of epoch g / samples. */
#include "data.h"

#include <stdlib.h>
#include <string.h>

#include "../fail.h"
#include "source.h"

struct data {
    const data_source *source;
    void *state;
    uint64_t sequence;
};

int data_open(const data_options *options, data **out, dcp_error *err) {
    static const data_source *const sources[] = {&data_text, &data_fixed};
    data *d = calloc(1, sizeof *d);
    if (!d) return trainer_fail_memory(err, sizeof *d);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (strcmp(sources[i]->type, options->type) == 0) d->source = sources[i];
    d->sequence = options->sequence;
    const int status = d->source ? d->source->open(options, &d->state, err)
                                 : trainer_fail(err, DCP_ERR_UNSUPPORTED,
                                                "data.type: %s is not built", options->type);
    if (status == DCP_OK)
        *out = d;
    else
        free(d);
    return status;
}

void data_close(data *d) {
    if (!d) return;
    d->source->close(d->state);
    free(d);
}

uint64_t data_samples(const data *d) { return d->source->samples(d->state); }

uint64_t data_fingerprint(const data *d) { return d->source->fingerprint(d->state); }

int data_read(data *d, uint64_t seed, uint64_t first, uint64_t n, int32_t *ids, int32_t *targets,
              uint64_t *counted, dcp_error *err) {
    const uint64_t samples = data_samples(d);
    for (uint64_t g = first; g < first + n; g++) {
        const uint64_t at = (g - first) * d->sequence;
        const int status =
            d->source->read(d->state, seed, g / samples, g % samples, ids + at, targets + at, err);
        if (status != DCP_OK) return status;
    }
    uint64_t count = 0;
    for (uint64_t i = 0; i < n * d->sequence; i++) count += targets[i] != DATA_IGNORE;
    *counted = count;
    return DCP_OK;
}
