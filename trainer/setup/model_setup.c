#include "setup/model_setup.h"

#include <inttypes.h>

#include "config/config.h"
#include "data/source.h"
#include "programs/fail.h"

int setup_model(const config *c, model **out, dcp_error *err) {
    dcp_error why;
    model *m;
    const int status = model_create(c->model, &m, &why);
    if (status != DCP_OK) return core_fail(err, status, "model: %s", why.message);
    if (model_speaks(m) && !c->frames) {
        model_destroy(m);
        return core_fail(err, DCP_ERR_ARG, "data.type: %s gives no recordings; set it to speech",
                         c->data_type);
    }
    model_set_frames(m, c->frames);
    model_set_checkpointing(m, c->checkpointing);
    model_set_packed(m, c->packs);
    model_set_type(m, c->bf16 ? KERNELS_BF16 : KERNELS_F32);
    *out = m;
    return DCP_OK;
}

static int check_frames(const config *c, uint64_t sequence, dcp_error *err) {
    if (c->frames <= sequence) return DCP_OK;
    return core_fail(
        err, DCP_ERR_ARG,
        "data.frames: %" PRIu64 " is more than data.sequence_length %" PRIu64
        ", of which each frame uses one position; set both to the values that to_records.py prints",
        c->frames, sequence);
}

int setup_sequence(const config *c, const model *m, uint64_t *out, dcp_error *err) {
    const uint64_t most = model_max_sequence(m);
    *out = 0;
    if (most == 0) return DCP_OK;
    *out = c->sequence;
    const int status = *out ? DCP_OK : data_fixed_sequence(c->data_path, out, err);
    if (status != DCP_OK) return status;
    if (*out <= most) return check_frames(c, *out, err);
    return core_fail(err, DCP_ERR_ARG,
                     "data.sequence_length: %" PRIu64
                     " is more than the model's max_position_embeddings %" PRIu64
                     "; use at most that",
                     *out, most);
}
