/* The tiny state. Any reader can recompute its numbers: with p = (2 t + 3) i + t, element i of
 * tensor t is (p mod 251 - 125) / 8 in floating types, for complex ones the real part, with p mod
 * 100 as the imaginary part; and p mod 100 in integer types. Tensors named "bits" and "big" have
 * the bits of a linear congruential generator. */
#include "tiny.h"

#include <stdlib.h>
#include <string.h>

static const dcp_tensor tensors[] = {
    {"/files/sub/vocab.txt", DCP_U8, 1, {5000}},
    {"/files/tokenizer.json", DCP_U8, 1, {77}},
    {"/model/big.weight", DCP_F32, 2, {1100, 1000}},
    {"/model/bits.f32", DCP_F32, 2, {64, 33}},
    {"/model/bits.f64", DCP_F64, 1, {257}},
    {"/model/boolean", DCP_BOOL, 2, {5, 3}},
    {"/model/empty", DCP_F32, 2, {0, 4}},
    {"/model/layer.0.bf16", DCP_BF16, 2, {7, 5}},
    {"/model/layer.0.f16", DCP_F16, 3, {5, 3, 2}},
    {"/model/layer.0.f32", DCP_F32, 4, {5, 3, 2, 2}},
    {"/model/layer.0.f64", DCP_F64, 1, {11}},
    {"/model/norm", DCP_F32, 1, {3}},
    {"/model/scalar.bits", DCP_F32, 0, {0}},
    {"/model/whole.i16", DCP_I16, 1, {13}},
    {"/model/whole.i32", DCP_I32, 1, {13}},
    {"/model/whole.i64", DCP_I64, 1, {13}},
    {"/model/whole.i8", DCP_I8, 1, {13}},
    {"/model/whole.u16", DCP_U16, 1, {13}},
    {"/model/whole.u32", DCP_U32, 1, {13}},
    {"/model/whole.u64", DCP_U64, 1, {13}},
    {"/model/whole.u8", DCP_U8, 1, {13}},
    {"/optimizer/exp_avg/bits.f32", DCP_F32, 2, {64, 33}},
    {"/optimizer/exp_avg/f8.e4m3", DCP_F8_E4M3, 2, {9, 3}},
    {"/optimizer/exp_avg/f8.e5m2", DCP_F8_E5M2, 2, {9, 3}},
    {"/optimizer/exp_avg/f8.e8m0", DCP_F8_E8M0, 2, {9, 3}},
    {"/optimizer/exp_avg/z.c64", DCP_C64, 1, {11}},
    {"/other/z.c128", DCP_C128, 2, {5, 3}},
};
_Static_assert(sizeof tensors / sizeof *tensors == TINY_TENSORS, "TINY_TENSORS");

const dcp_tensor *tiny_tensor(size_t i) { return i < TINY_TENSORS ? &tensors[i] : NULL; }

static void fill_bits(size_t t, unsigned char *data, uint64_t bytes) {
    uint32_t x = (uint32_t)t + 1;
    for (uint64_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = (unsigned char)(x >> 24);
    }
}

/* The top 16 bits of an fp32 that bf16 represents exactly; fp16 from its fields. */
static uint16_t half_bits(dcp_dtype dtype, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == DCP_BF16) return (uint16_t)(bits >> 16);
    if (value == 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 112) << 10) |
                      (bits >> 13 & 0x3ff));
}

static void fill_element(dcp_dtype dtype, uint64_t pattern, unsigned char *out) {
    float f = ((float)(pattern % 251) - 125) / 8;
    double d = (double)f;
    uint64_t whole = pattern % 100;
    const float c64[] = {f, (float)whole};
    const double c128[] = {d, (double)whole};
    uint16_t half = half_bits(dtype, f);
    switch (dtype) {
    case DCP_F64:
        memcpy(out, &d, 8);
        break;
    case DCP_F32:
        memcpy(out, &f, 4);
        break;
    case DCP_F16:
    case DCP_BF16:
        memcpy(out, &half, 2);
        break;
    case DCP_C64:
        memcpy(out, c64, sizeof c64);
        break;
    case DCP_C128:
        memcpy(out, c128, sizeof c128);
        break;
    case DCP_BOOL:
        *out = pattern & 1;
        break;
    default:
        memcpy(out, &whole, dcp_dtype_bytes(dtype)); /* little-endian */
    }
}

void tiny_fill(size_t t, unsigned char *data) {
    uint64_t bytes = dcp_tensor_bytes(&tensors[t]), size = dcp_dtype_bytes(tensors[t].dtype);
    if (strstr(tensors[t].path, "bits") || strstr(tensors[t].path, "big")) {
        fill_bits(t, data, bytes);
        return;
    }
    for (uint64_t i = 0; i < bytes / size; i++)
        fill_element(tensors[t].dtype, (2 * t + 3) * i + t, data + i * size);
}

static unsigned char *box_data(const tiny *t, size_t i, const dcp_box *box, uint64_t *bytes) {
    const dcp_tensor *tensor = &tensors[i];
    uint64_t rows = tensor->ndim ? tensor->shape[0] : 1;
    *bytes = dcp_box_elems(box, tensor->ndim) * dcp_dtype_bytes(tensor->dtype);
    uint64_t row_bytes = rows ? dcp_tensor_bytes(tensor) / rows : 0;
    return t->data[i] + (*bytes && tensor->ndim ? box->start[0] * row_bytes : 0);
}

int tiny_make(tiny *t, int rank, int world, int filled) {
    memset(t, 0, sizeof *t);
    if (dcp_state_create(&t->state, NULL)) return -1;
    for (size_t i = 0; i < TINY_TENSORS; i++) {
        uint64_t bytes;
        t->data[i] = calloc(1, dcp_tensor_bytes(&tensors[i]) + 8);
        if (!t->data[i]) return -1;
        if (filled) tiny_fill(i, t->data[i]);
        dcp_box box = dcp_box_chunk(&tensors[i], rank, world);
        unsigned char *data = box_data(t, i, &box, &bytes);
        if (dcp_state_add(t->state, &tensors[i], &box, data, NULL)) return -1;
    }
    return 0;
}

void tiny_free(tiny *t) {
    dcp_state_destroy(t->state);
    for (size_t i = 0; i < TINY_TENSORS; i++) free(t->data[i]);
}

int tiny_is_filled(const tiny *t, int rank, int world) {
    tiny want;
    int same = tiny_make(&want, rank, world, 1) == 0;
    for (size_t i = 0; same && i < TINY_TENSORS; i++) {
        uint64_t bytes;
        dcp_box box = dcp_box_chunk(&tensors[i], rank, world);
        const unsigned char *got = box_data(t, i, &box, &bytes);
        same = memcmp(got, box_data(&want, i, &box, &bytes), bytes) == 0;
    }
    tiny_free(&want);
    return same;
}

int tiny_save(dcp_comm *comm, const char *dir, uint64_t step, dcp_layout layout, dcp_error *err) {
    tiny t;
    dcp_store *store;
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    if (tiny_make(&t, dcp_comm_rank(comm), dcp_comm_size(comm), 1)) return DCP_ERR_NO_MEMORY;
    int status = dcp_store_open(comm, dir, NULL, &store, err);
    if (status == DCP_OK) {
        status = dcp_save(store, step, t.state, TINY_JSON, &options, NULL, err);
        dcp_store_close(store);
    }
    tiny_free(&t);
    return status;
}
