/* Tied weights: transformers makes lm_head.weight from the embedding where the configuration says
 * so, and writes one of them. A copy that differs is no copy, and goes out as it is. */
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "programs/program.h"

#define COPY "/model/lm_head.weight"
#define PIECE_BYTES (8u << 20)

static const char *const embeddings[] = {
    "/model/model.embed_tokens.weight",
    "/model/transformer.wte.weight",
    "/model/wte.weight",
};

/* GPT-2 ties where its configuration is silent. */
static int is_tied(const dcp_checkpoint *ckpt) {
    json_t *config = export_config_stored(ckpt);
    const json_t *tie = json_object_get(config, "tie_word_embeddings");
    const char *type = json_string_value(json_object_get(config, "model_type"));
    int tied = tie && !json_is_null(tie) ? json_is_true(tie) : type && strcmp(type, "gpt2") == 0;
    json_decref(config);
    return tied;
}

static int same_shape(const dcp_tensor *a, const dcp_tensor *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

/* Compares a piece after the other, into `memory` of two pieces. */
static int compare(dcp_checkpoint *ckpt, const dcp_tensor *a, const dcp_tensor *b, char *memory,
                   int *same) {
    const dcp_box whole = dcp_box_whole(a);
    const uint64_t size = dcp_dtype_bytes(a->dtype), elems = dcp_box_elems(&whole, a->ndim);
    *same = 1;
    for (uint64_t first = 0, n; *same && first < elems; first += n) {
        dcp_error err = {0};
        dcp_box piece;
        n = dcp_box_slice(a->ndim, &whole, first, PIECE_BYTES / size, &piece);
        if (dcp_checkpoint_read(ckpt, a->path, &piece, memory, &err) ||
            dcp_checkpoint_read(ckpt, b->path, &piece, memory + PIECE_BYTES, &err))
            return program_report(&err);
        *same = memcmp(memory, memory + PIECE_BYTES, n * size) == 0;
    }
    return 0;
}

static int find_copy(dcp_checkpoint *ckpt, int *found) {
    const dcp_tensor *copy = dcp_checkpoint_find(ckpt, COPY), *embedding = NULL;
    *found = 0;
    for (size_t i = 0; !embedding && i < sizeof embeddings / sizeof *embeddings; i++)
        embedding = dcp_checkpoint_find(ckpt, embeddings[i]);
    if (!copy || !embedding || !is_tied(ckpt) || !same_shape(copy, embedding)) return 0;
    char *memory = malloc(2 * (size_t)PIECE_BYTES);
    if (!memory) return program_fail(PROGRAM_FAILED, "out of memory");
    int status = compare(ckpt, copy, embedding, memory, found);
    free(memory);
    return status;
}

int export_tied_copy(const launch *job, dcp_checkpoint *ckpt, const char **out) {
    int found = 0;
    int status = launch_worst(job, job->rank == 0 ? find_copy(ckpt, &found) : 0);
    launch_broadcast(job, &found, sizeof found);
    *out = found ? COPY : NULL;
    return status;
}
