#include "setup/subject.h"

#include <inttypes.h>

#include "data/data.h"
#include "programs/fail.h"

int subject_model(const config *c, model **out, dcp_error *err) {
    dcp_error why;
    const int status = model_create(c->model, out, &why);
    if (status != DCP_OK) return core_fail(err, status, "model: %s", why.message);
    model_set_checkpointing(*out, c->checkpointing);
    model_set_type(*out, c->bf16 ? KERNELS_BF16 : KERNELS_F32);
    return DCP_OK;
}

int subject_sequence(const config *c, const model *m, uint64_t *out, dcp_error *err) {
    const uint64_t most = model_max_sequence(m);
    *out = 0;
    if (most == 0) return DCP_OK;
    *out = c->sequence;
    const int status = *out ? DCP_OK : data_fixed_sequence(c->data_path, out, err);
    if (status != DCP_OK || *out <= most) return status;
    return core_fail(err, DCP_ERR_ARG,
                     "data.sequence_length: %" PRIu64
                     " is more than the model's max_position_embeddings %" PRIu64,
                     *out, most);
}
