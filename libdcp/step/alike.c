/* The sum is a polynomial modulo a prime: its coefficients are what is summed, and the key is where
 * it is evaluated. Two different ones have the same value under a few keys only, as many as they
 * have coefficients, of 2^61. Reference: Carter & Wegman, "New Hash Functions and Their Use in
 * Authentication and Set Equality". */
#include "step/alike.h"

#include <string.h>

#include "core/bytes.h"
#include "core/entropy.h"
#include "core/fail.h"

#define PRIME ((1ULL << 61) - 1)

typedef unsigned __int128 product;

/* `word` < PRIME. */
static uint64_t add_word(uint64_t sum, uint64_t key, uint64_t word) {
    const product all = (product)sum * key + word;
    const uint64_t once = (uint64_t)(all & PRIME) + (uint64_t)(all >> 61);
    return once < PRIME ? once : once - PRIME;
}

/* 56 bits at a time. The length goes first, so that no bytes pass from one text to the next. */
static uint64_t add_text(uint64_t sum, uint64_t key, const void *data, size_t bytes) {
    const unsigned char *at = data, *end = at + bytes;
    unsigned char last[8] = {0};
    sum = add_word(sum, key, bytes);
    for (; end - at >= 8; at += 7) sum = add_word(sum, key, core_get_u64(at) << 8 >> 8);
    memcpy(last, at, (size_t)(end - at));
    return add_word(sum, key, core_get_u64(last));
}

static uint64_t sum_under(const dcp_checkpoint *ckpt, uint64_t key) {
    uint64_t sum = 1; /* so that zeros count at the beginning, too */
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const dcp_tensor *t = &ckpt->tensors[i].tensor;
        sum = add_word(sum, key, (uint64_t)t->dtype | (uint64_t)t->ndim << 8);
        sum = add_text(sum, key, t->shape, t->ndim * sizeof *t->shape);
        sum = add_text(sum, key, t->path, strlen(t->path));
    }
    sum = add_text(sum, key, ckpt->state_id, strlen(ckpt->state_id));
    return add_text(sum, key, ckpt->json, strlen(ckpt->json));
}

int step_alike_tell(const dcp_checkpoint *ckpt, uint64_t told[STEP_ALIKE_WORDS], dcp_error *err) {
    uint64_t bits;
    int status = core_entropy(&bits, err);
    if (status) return status;
    told[STEP_ALIKE_KEY] = bits % PRIME;
    told[STEP_ALIKE_SUM] = sum_under(ckpt, told[STEP_ALIKE_KEY]);
    return DCP_OK;
}

int step_alike_check(const dcp_checkpoint *ckpt, const uint64_t told[STEP_ALIKE_WORDS],
                     dcp_error *err) {
    if (sum_under(ckpt, told[STEP_ALIKE_KEY]) == told[STEP_ALIKE_SUM]) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, ckpt->path,
                        "shards differ in their tensors or meta under the same checksums");
}
