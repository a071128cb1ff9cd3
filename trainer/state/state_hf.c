/* Parameters from Hugging Face's safetensors. Each rank reads its own rows. */
#include "state/state_hf.h"

#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "state/match.h"
#include <dcp/safetensors.h>

enum { PIECE_ELEMS = 1 << 18 };

static int read_param(train_state *s, dcp_st_reader *reader, const fsdp_param *param, void *piece,
                      float *wide, dcp_error *err) {
    const model_param *info = &param->info;
    const dcp_tensor *tensor = dcp_st_find(reader, info->name);
    if (!tensor) tensor = dcp_st_find(reader, info->name + info->base);
    if (!tensor) state_randomize_param(s, param);
    if (!tensor) return DCP_OK;
    const uint64_t size = dcp_dtype_bytes(tensor->dtype);
    const uint64_t first = param->box.start[0] * param->row_elems;
    int status = DCP_OK;
    for (uint64_t at = 0; at < param->elems && status == DCP_OK; at += PIECE_ELEMS) {
        const uint64_t left = param->elems - at, n = left < PIECE_ELEMS ? left : PIECE_ELEMS;
        status = dcp_st_read(reader, tensor->path, (first + at) * size, n * size, piece, err);
        if (status != DCP_OK) break;
        dcp_convert(tensor->dtype, piece, DCP_F32, wide, n); /* exact, and was found possible */
        s->k->upload(s->k, s->params + param->param_at + at, wide, n * sizeof *wide);
    }
    state_release(s, param);
    return status;
}

/* Of a matrix, and so whole rows or a part of one. */
static int read_hf_box(void *reader, const dcp_tensor *tensor, const dcp_box *box, void *out,
                       dcp_error *err) {
    const uint64_t size = dcp_dtype_bytes(tensor->dtype);
    const uint64_t first = box->start[0] * tensor->shape[1] + box->start[1];
    const uint64_t n = dcp_box_elems(box, tensor->ndim);
    return dcp_st_read(reader, tensor->path, first * size, n * size, out, err);
}

static int match_reader(const fsdp_layout *layout, dcp_st_reader *reader, const char *path,
                        dcp_error *err) {
    const size_t n = dcp_st_tensors(reader);
    const dcp_tensor **list = calloc(n + 1, sizeof *list);
    if (!list) return core_fail_memory(err, n * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = dcp_st_tensor(reader, i);
    const found_tensors found = {
        .where = path, .prefix = "", .list = list, .n = n, .weights_only = 1};
    const int status = state_match_weights(layout, &found, read_hf_box, reader, err);
    free(list);
    return status;
}

int state_match_hf(const fsdp_layout *layout, const char *path, dcp_error *err) {
    dcp_st_reader *reader;
    int status = dcp_st_open(path, &reader, err);
    if (status != DCP_OK) return status;
    status = match_reader(layout, reader, path, err);
    dcp_st_close(reader);
    return status;
}

int state_read_hf(train_state *s, const char *path, dcp_error *err) {
    dcp_st_reader *reader;
    int status = dcp_st_open(path, &reader, err);
    if (status != DCP_OK) return status;
    float *piece = malloc(2 * PIECE_ELEMS * sizeof *piece); /* as it is read, and widened */
    if (!piece) status = core_fail_memory(err, 2 * PIECE_ELEMS * sizeof *piece);
    if (status == DCP_OK) status = match_reader(s->layout, reader, path, err);
    for (size_t i = 0; i < s->layout->n_params && status == DCP_OK; i++)
        status = read_param(s, reader, &s->layout->params[i], piece, piece + PIECE_ELEMS, err);
    free(piece);
    dcp_st_close(reader);
    return status;
}
