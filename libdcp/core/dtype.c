/* Element types. A single list (dcp/tensor.h) defines names and sizes. */
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "dcp/tensor.h"

#define NAME(id, name, bytes) name,
#define BYTES(id, name, bytes) bytes,
static const char *const names[] = {NULL, DCP_DTYPE_LIST(NAME)};
static const uint64_t sizes[] = {0, DCP_DTYPE_LIST(BYTES)};
static const char *const left_out[] = {"F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4", "F6_E2M3", "F6_E3M2"};

const char *dcp_dtype_name(dcp_dtype dtype) {
    return (unsigned)dtype < DCP_DTYPE_COUNT ? names[dtype] : NULL;
}

uint64_t dcp_dtype_bytes(dcp_dtype dtype) {
    return (unsigned)dtype < DCP_DTYPE_COUNT ? sizes[dtype] : 0;
}

int dcp_dtype_parse(const char *name, dcp_dtype *out) {
    if (!name || !out) return DCP_ERR_ARG;
    for (unsigned i = DCP_DTYPE_NONE + 1; i < DCP_DTYPE_COUNT; i++)
        if (!strcmp(name, names[i])) {
            *out = (dcp_dtype)i;
            return DCP_OK;
        }
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (!strcmp(name, left_out[i])) return DCP_ERR_UNSUPPORTED;
    return DCP_ERR_NOT_FOUND;
}

/* Conversion of elements from one type to another. Each element goes through fp64, or gives the
 * same result as if it did. fp64 represents every value of the convertible types exactly, so every
 * conversion rounds only once. A batch is read before any of it is written, so memory may overlap
 * (dcp/tensor.h). */

enum { BATCH = 1024 };

#define F64_INFINITY 0x7ff0000000000000ULL
#define F64_QUIET 0x0008000000000000ULL

/* The number of bits in an integer's magnitude or a float's significand. */
static const struct number_kind {
    unsigned char bits, is_signed, is_float;
} kinds[DCP_DTYPE_COUNT] = {
    [DCP_F64] = {53, 1, 1}, [DCP_F32] = {24, 1, 1},    [DCP_F16] = {11, 1, 1},
    [DCP_BF16] = {8, 1, 1}, [DCP_F8_E4M3] = {4, 1, 1}, [DCP_F8_E5M2] = {3, 1, 1},
    [DCP_I64] = {63, 1, 0}, [DCP_I32] = {31, 1, 0},    [DCP_I16] = {15, 1, 0},
    [DCP_I8] = {7, 1, 0},   [DCP_U64] = {64, 0, 0},    [DCP_U32] = {32, 0, 0},
    [DCP_U16] = {16, 0, 0}, [DCP_U8] = {8, 0, 0},      [DCP_F8_E8M0] = {1, 0, 1},
};

/* Returns the type of a complex type's two components; for another type, the type itself. */
static dcp_dtype component_of(dcp_dtype dtype) {
    return dtype == DCP_C64 ? DCP_F32 : dtype == DCP_C128 ? DCP_F64 : dtype;
}

static bool is_complex(dcp_dtype dtype) { return component_of(dtype) != dtype; }

static int possible(dcp_dtype from, dcp_dtype to) {
    const struct number_kind *a = &kinds[component_of(from)], *b = &kinds[component_of(to)];
    if (is_complex(from)) return is_complex(to);
    if (from == DCP_BOOL || to == DCP_BOOL) return 0;
    if (a->is_float) return b->is_float;
    return a->bits <= b->bits && a->is_signed <= b->is_signed;
}

static double f64_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double f64_of_f32_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* Decodes an IEEE-like float with `e` exponent bits and `m` mantissa bits; the highest exponent
 * means Inf or NaN. */
static inline double decode(uint32_t bits, unsigned e, unsigned m) {
    uint64_t sign = (uint64_t)(bits >> (e + m) & 1) << 63, bias = (1u << (e - 1)) - 1;
    uint64_t mantissa = bits & ((1u << m) - 1), exponent = bits >> m & ((1u << e) - 1);
    uint64_t fraction = mantissa << (52 - m);
    if (exponent == (1u << e) - 1)
        return f64_of(sign | F64_INFINITY | fraction | (mantissa ? F64_QUIET : 0));
    if (exponent) return f64_of(sign | (exponent + 1023 - bias) << 52 | fraction);
    double last_place = f64_of(sign | (1024 - bias - m) << 52);
    return (double)mantissa * last_place;
}

/* OCP's E4M3 has no infinities: its highest exponent is an ordinary one, except that all ones mean
 * NaN. */
static inline double decode_e4m3(uint32_t bits) {
    uint64_t sign = (uint64_t)(bits >> 7) << 63;
    if ((bits & 0x7f) == 0x7f) return f64_of(sign | F64_INFINITY | F64_QUIET);
    if ((bits & 0x78) == 0x78)
        return f64_of(sign | (uint64_t)(1023 + 8) << 52 | (bits & 7ULL) << 49);
    return decode(bits, 4, 3);
}

/* OCP's E8M0 has only an exponent. */
static inline double decode_e8m0(uint32_t bits) {
    return f64_of(bits == 0xff ? F64_INFINITY | F64_QUIET : (uint64_t)(bits + 1023 - 127) << 52);
}

/* Drops the low `drop` bits (1 to 63), rounding to nearest even. */
static inline uint64_t round_off(uint64_t magnitude, unsigned drop) {
    uint64_t half = 1ULL << (drop - 1);
    return (magnitude + half - 1 + (magnitude >> drop & 1)) >> drop;
}

/* The inverse of decode; rounds to nearest even. A result below the smallest normal number has the
 * fixed exponent of subnormal numbers, so more bits of the mantissa are dropped. `top` is the
 * encoding of all magnitudes that are too large. */
static inline uint32_t encode(double value, unsigned e, unsigned m, uint32_t top, uint32_t nan) {
    uint64_t bits, bias = (1u << (e - 1)) - 1;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (uint32_t)(bits >> 63) << (e + m);
    uint64_t magnitude = bits & INT64_MAX, exponent = magnitude >> 52, least = 1024 - bias;
    if (magnitude > F64_INFINITY) return sign | nan;
    if (exponent >= least) {
        uint64_t rounded = round_off(magnitude - ((least - 1) << 52), 52 - m);
        return sign | (rounded > top ? top : (uint32_t)rounded);
    }
    uint64_t drop = 52 - m + least - exponent;
    if (drop > 53) return sign; /* less than half of the last place */
    uint64_t mantissa = (magnitude & ((1ULL << 52) - 1)) | 1ULL << 52;
    return sign | (uint32_t)round_off(mantissa, (unsigned)drop);
}

/* Gives the same bits as ml_dtypes 0.6 and, for positive numbers, as PyTorch's
 * c10/util/Float8_e8m0fnu.h. A value halfway between two powers of 2 is rounded up. Rounding treats
 * pattern 0, which means 2^-127, as if it meant zero, so everything above 2^-127 gives pattern 1 or
 * more. Values without a pattern become NaN: zero, negative numbers (PyTorch drops the sign),
 * infinity. */
static inline uint32_t encode_e8m0(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (!(value > 0)) return 0xff;
    if (value < 0x1p-126) return value > 0x1p-127;
    uint64_t rounded = ((bits + (1ULL << 51)) >> 52) - 1023 + 127;
    return rounded > 0xff ? 0xff : (uint32_t)rounded;
}

#define READ_AS(type, expression)                                                                  \
    for (uint64_t i = 0; i < n; i++) {                                                             \
        type x;                                                                                    \
        memcpy(&x, in + i * sizeof x, sizeof x);                                                   \
        out[i] = (double)(expression);                                                             \
    }                                                                                              \
    break

static void decode_batch(dcp_dtype from, const unsigned char *in, uint64_t n, double *out) {
    switch (from) {
    case DCP_F64:
        READ_AS(double, x);
    case DCP_F32:
        READ_AS(float, x);
    case DCP_F16:
        READ_AS(uint16_t, decode(x, 5, 10));
    case DCP_BF16:
        READ_AS(uint16_t, f64_of_f32_bits((uint32_t)x << 16));
    case DCP_F8_E4M3:
        READ_AS(uint8_t, decode_e4m3(x));
    case DCP_F8_E5M2:
        READ_AS(uint8_t, decode(x, 5, 2));
    case DCP_F8_E8M0:
        READ_AS(uint8_t, decode_e8m0(x));
    case DCP_I32:
        READ_AS(int32_t, x);
    case DCP_I16:
        READ_AS(int16_t, x);
    case DCP_I8:
        READ_AS(int8_t, x);
    case DCP_U32:
        READ_AS(uint32_t, x);
    case DCP_U16:
        READ_AS(uint16_t, x);
    case DCP_U8:
        READ_AS(uint8_t, x);
    default: /* converts only to itself: see `possible` */
        assert(0);
        break;
    }
}

#define WRITE_AS(type, expression)                                                                 \
    for (uint64_t i = 0; i < n; i++) {                                                             \
        type x = (type)(expression);                                                               \
        memcpy(out + i * sizeof x, &x, sizeof x);                                                  \
    }                                                                                              \
    break

static void encode_batch(dcp_dtype to, const double *in, uint64_t n, unsigned char *out) {
    switch (to) {
    case DCP_F64:
        WRITE_AS(double, in[i]);
    case DCP_F32:
        WRITE_AS(float, in[i]);
    case DCP_F16:
        WRITE_AS(uint16_t, encode(in[i], 5, 10, 0x7c00, 0x7e00));
    case DCP_BF16:
        WRITE_AS(uint16_t, encode(in[i], 8, 7, 0x7f80, 0x7fc0));
    case DCP_F8_E4M3:
        WRITE_AS(uint8_t, encode(in[i], 4, 3, 0x7f, 0x7f));
    case DCP_F8_E5M2:
        WRITE_AS(uint8_t, encode(in[i], 5, 2, 0x7c, 0x7f));
    case DCP_F8_E8M0:
        WRITE_AS(uint8_t, encode_e8m0(in[i]));
    case DCP_I64:
        WRITE_AS(int64_t, in[i]);
    case DCP_I32:
        WRITE_AS(int32_t, in[i]);
    case DCP_I16:
        WRITE_AS(int16_t, in[i]);
    case DCP_U64:
        WRITE_AS(uint64_t, in[i]);
    case DCP_U32:
        WRITE_AS(uint32_t, in[i]);
    case DCP_U16:
        WRITE_AS(uint16_t, in[i]);
    default: /* converts only from itself: see `possible` */
        assert(0);
        break;
    }
}

/* Conversions between fp32 and bf16, the most frequent pair, work on the bits, in vectors. The
 * results are the same as through fp64. A NaN becomes quiet. */
static void narrow_to_bf16(const unsigned char *in, uint64_t n, unsigned char *out) {
    uint32_t wide[BATCH];
    uint16_t narrow[BATCH];
    memcpy(wide, in, n * sizeof *wide);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t x = wide[i], rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16;
        uint32_t nan = (x >> 16 & 0x8000) | 0x7fc0;
        narrow[i] = (uint16_t)((x & INT32_MAX) > 0x7f800000 ? nan : rounded);
    }
    memcpy(out, narrow, n * sizeof *narrow);
}

static void widen_bf16(const unsigned char *in, uint64_t n, unsigned char *out) {
    uint16_t narrow[BATCH];
    uint32_t wide[BATCH];
    memcpy(narrow, in, n * sizeof *narrow);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t x = narrow[i], nan = (x & INT16_MAX) > 0x7f80;
        wide[i] = x << 16 | nan << 22;
    }
    memcpy(out, wide, n * sizeof *wide);
}

static void convert_batch(dcp_dtype from, const unsigned char *in, dcp_dtype to, unsigned char *out,
                          uint64_t n) {
    double batch[BATCH];
    assert(n <= BATCH);
    if (from == DCP_F32 && to == DCP_BF16) {
        narrow_to_bf16(in, n, out);
    } else if (from == DCP_BF16 && to == DCP_F32) {
        widen_bf16(in, n, out);
    } else {
        decode_batch(from, in, n, batch);
        encode_batch(to, batch, n, out);
    }
}

/* Converts at most BATCH / 2 real numbers to complex ones. */
static void make_complex(dcp_dtype from, const unsigned char *in, dcp_dtype part,
                         unsigned char *out, uint64_t n) {
    double real[BATCH / 2], both[BATCH];
    assert(n <= BATCH / 2);
    decode_batch(from, in, n, real);
    for (uint64_t i = 0; i < n; i++) {
        both[2 * i] = real[i];
        both[2 * i + 1] = 0;
    }
    encode_batch(part, both, 2 * n, out);
}

int dcp_convert(dcp_dtype from, const void *src, dcp_dtype to, void *dst, uint64_t n) {
    uint64_t from_bytes = dcp_dtype_bytes(from), to_bytes = dcp_dtype_bytes(to);
    if (!from_bytes || !to_bytes || (n && (!src || !dst))) return DCP_ERR_ARG;
    if (from == to) {
        if (n) memmove(dst, src, n * from_bytes);
        return DCP_OK;
    }
    if (!possible(from, to)) return DCP_ERR_UNSUPPORTED;
    const uint64_t most = is_complex(to) ? BATCH / 2 : BATCH;
    for (uint64_t i = 0; i < n; i += most) {
        const unsigned char *in = (const unsigned char *)src + i * from_bytes;
        unsigned char *out = (unsigned char *)dst + i * to_bytes;
        const uint64_t here = n - i < most ? n - i : most;
        if (is_complex(from))
            convert_batch(component_of(from), in, component_of(to), out, 2 * here);
        else if (is_complex(to))
            make_complex(from, in, component_of(to), out, here);
        else
            convert_batch(from, in, to, out, here);
    }
    return DCP_OK;
}
