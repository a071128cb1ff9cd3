/* As transformers' image processors compute it: a byte times rescale_factor, where do_rescale;
 * then minus image_mean and by image_std of the channel, where do_normalize. Sizes are not changed
 * here: data have that of the model. */
#include "state/preprocessor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "ranks/agree.h"
#include "state/kept_files.h"

static const char file_name[] = "preprocessor_config.json";

static int is_off(const json_t *o, const char *key) {
    return json_is_false(json_object_get(o, key));
}

static int fail_value(const char *key, const char *asked, dcp_error *err) {
    return core_fail(err, DCP_ERR_ARG,
                     "%s of the model (of init, or of the checkpoint's files): %s is not %s; mend "
                     "it, or set do_normalize to false",
                     file_name, key, asked);
}

/* A number for each channel, or one for all. */
static int read_channels(const json_t *o, const char *key, int above_zero, uint64_t channels,
                         float *out, dcp_error *err) {
    const json_t *value = json_object_get(o, key);
    char asked[96];
    int is_good = json_is_number(value) || json_array_size(value) == channels;
    for (uint64_t c = 0; c < channels && is_good; c++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, c) : value;
        out[c] = (float)json_number_value(one);
        is_good = json_is_number(one) && (!above_zero || out[c] > 0.0f);
    }
    if (is_good) return DCP_OK;
    snprintf(asked, sizeof asked, "a number%s for each of the model's %" PRIu64 " channels",
             above_zero ? " above 0" : "", channels);
    return fail_value(key, asked, err);
}

static int read_scale(const json_t *o, double *out, dcp_error *err) {
    const json_t *factor = json_object_get(o, "rescale_factor");
    *out = is_off(o, "do_rescale") ? 1.0 : factor ? json_number_value(factor) : 1.0 / 255.0;
    return *out > 0.0 ? DCP_OK : fail_value("rescale_factor", "a number above 0", err);
}

static int read_normalization(const char *text, uint64_t bytes, uint64_t channels,
                              sample_normalization *out, dcp_error *err) {
    json_t *o = core_json_read(text, bytes, NULL);
    int status = json_is_object(o) ? DCP_OK : fail_value("it", "a JSON object", err);
    const int normalizes = status == DCP_OK && !is_off(o, "do_normalize") &&
                           json_object_get(o, "image_mean") && json_object_get(o, "image_std");
    if (normalizes && channels > SAMPLE_MOST_CHANNELS)
        status = core_fail(err, DCP_ERR_UNSUPPORTED,
                           "%s: images of more than %d channels are not normalized", file_name,
                           SAMPLE_MOST_CHANNELS);
    if (normalizes && status == DCP_OK) status = read_scale(o, &out->scale, err);
    if (normalizes && status == DCP_OK)
        status = read_channels(o, "image_mean", 0, channels, out->mean, err);
    if (normalizes && status == DCP_OK)
        status = read_channels(o, "image_std", 1, channels, out->std, err);
    if (normalizes) out->channels = channels;
    json_decref(o);
    return status;
}

int state_preprocessor_read(const train_state *s, MPI_Comm comm, uint64_t channels,
                            sample_normalization *out, dcp_error *err) {
    const kept_file *file = state_files_find(s, file_name);
    char *text;
    uint64_t bytes;
    *out = (sample_normalization){0};
    if (!file) return DCP_OK;
    int status = state_files_gather(file, comm, &text, &bytes, err);
    if (status != DCP_OK) return status;
    status = read_normalization(text, bytes, channels, out, err); /* the same on all ranks */
    free(text);
    return status;
}
