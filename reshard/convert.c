/* Everything goes through fp64, which holds each of the narrower floats exactly; so there is one
 * rounding, whatever the pair of types. fp16 and bf16 are rounded from fp32 that was itself rounded
 * to odd: then the second rounding gives what a single one would (Boldo and Melquiond, 2008). */
#include "convert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 1024 };

int convert_is_float(dcp_dtype dtype) {
    return dtype == DCP_F64 || dtype == DCP_F32 || dtype == DCP_F16 || dtype == DCP_BF16;
}

static double f64_from_f32_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* IEEE-like: sign, then `exponent_bits`, then `mantissa_bits`; the highest exponent is inf or NaN.
 */
static double f64_from_small(uint32_t bits, int exponent_bits, int mantissa_bits) {
    uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    uint32_t top = (1u << exponent_bits) - 1, exponent = bits >> mantissa_bits & top;
    int bias = (int)(top >> 1);
    double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1.0 : 1.0;
    if (exponent == top) return copysign(mantissa ? (double)NAN : (double)INFINITY, sign);
    if (exponent == 0) return sign * ldexp((double)mantissa, 1 - bias - mantissa_bits);
    return sign *
           ldexp((double)(mantissa | 1u << mantissa_bits), (int)exponent - bias - mantissa_bits);
}

/* OCP's E4M3 has no infinities: its highest exponent is a number, all ones are NaN. */
static double f64_from_e4m3(uint8_t bits) {
    if ((bits & 0x7f) == 0x7f) return copysign((double)NAN, bits & 0x80 ? -1.0 : 1.0);
    if ((bits & 0x78) != 0x78) return f64_from_small(bits, 4, 3);
    return ldexp((double)(8 | (bits & 7)), 5) * (bits & 0x80 ? -1.0 : 1.0);
}

#define TO_F64(type, expression)                                                                   \
    do {                                                                                           \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            type x;                                                                                \
            memcpy(&x, (const char *)in + i * sizeof x, sizeof x);                                 \
            out[i] = (double)(expression);                                                         \
        }                                                                                          \
    } while (0)

void convert_to_f64(dcp_dtype dtype, const void *in, uint64_t n, double *out) {
    switch (dtype) {
    case DCP_F64:
        TO_F64(double, x);
        break;
    case DCP_F32:
        TO_F64(float, x);
        break;
    case DCP_F16:
        TO_F64(uint16_t, f64_from_small(x, 5, 10));
        break;
    case DCP_BF16:
        TO_F64(uint16_t, f64_from_f32_bits((uint32_t)x << 16));
        break;
    case DCP_F8_E4M3:
        TO_F64(uint8_t, f64_from_e4m3(x));
        break;
    case DCP_F8_E5M2:
        TO_F64(uint8_t, f64_from_small(x, 5, 2));
        break;
    case DCP_I64:
        TO_F64(int64_t, x);
        break;
    case DCP_I32:
        TO_F64(int32_t, x);
        break;
    case DCP_I16:
        TO_F64(int16_t, x);
        break;
    case DCP_I8:
        TO_F64(int8_t, x);
        break;
    case DCP_U64:
        TO_F64(uint64_t, x);
        break;
    case DCP_U32:
        TO_F64(uint32_t, x);
        break;
    case DCP_U16:
        TO_F64(uint16_t, x);
        break;
    case DCP_U8:
        TO_F64(uint8_t, x);
        break;
    case DCP_BOOL:
        TO_F64(uint8_t, x != 0);
        break;
    case DCP_DTYPE_COUNT:
        break;
    }
}

static uint32_t f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Bits of fp32, rounded to odd: toward zero, with the last bit set where that was inexact. */
static uint32_t f32_bits_odd(double value) {
    float nearest = (float)value;
    uint32_t bits = f32_bits(nearest);
    if (!isfinite(nearest) || (double)nearest == value) return bits;
    if (fabs((double)nearest) > fabs(value)) bits--;
    return bits | 1;
}

static uint16_t bf16_bits(double value) {
    uint32_t bits = f32_bits_odd(value);
    if (isnan(value)) return (uint16_t)((bits >> 16 & 0x8000) | 0x7fc0);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Drops the low `drop` bits of a magnitude, to nearest even. */
static uint32_t round_off(uint32_t magnitude, unsigned drop) {
    uint32_t half = 1u << (drop - 1);
    return (magnitude + half - 1 + (magnitude >> drop & 1)) >> drop;
}

/* Below 2^-14 the mantissa's last place stands still at 2^-24; the shift grows instead. */
static uint16_t f16_bits(double value) {
    uint32_t bits = f32_bits_odd(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (isnan(value)) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more */
    if (magnitude >= 0x38800000) return (uint16_t)(sign | round_off(magnitude - 0x38000000, 13));
    uint32_t exponent = magnitude >> 23;
    if (exponent < 101) return (uint16_t)sign; /* under 2^-26 */
    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | round_off(mantissa, 126 - exponent));
}

static void store_batch(dcp_dtype to, const double *in, uint64_t n, void *out) {
    float *f = out;
    uint16_t *h = out;
    if (to == DCP_F32)
        for (uint64_t i = 0; i < n; i++) f[i] = (float)in[i];
    else if (to == DCP_BF16)
        for (uint64_t i = 0; i < n; i++) h[i] = bf16_bits(in[i]);
    else
        for (uint64_t i = 0; i < n; i++) h[i] = f16_bits(in[i]);
}

void convert_cast(dcp_dtype from, dcp_dtype to, const void *in, uint64_t n, void *out) {
    double batch[BATCH];
    for (uint64_t i = 0; i < n; i += BATCH) {
        uint64_t m = n - i < BATCH ? n - i : BATCH;
        convert_to_f64(from, (const char *)in + i * dcp_dtype_bytes(from), m, batch);
        store_batch(to, batch, m, (char *)out + i * dcp_dtype_bytes(to));
    }
}

static int digits(dcp_dtype dtype) {
    if (dtype == DCP_F64) return 17;
    if (dtype == DCP_F32) return 9;
    return dtype == DCP_F16 ? 5 : 4;
}

void convert_print(dcp_dtype dtype, const void *element, char *text) {
    int64_t whole;
    uint64_t natural;
    double value = 0;
    convert_to_f64(dtype, element, 1, &value);
    switch (dtype) {
    case DCP_I64:
        memcpy(&whole, element, sizeof whole);
        snprintf(text, CONVERT_TEXT, "%" PRId64, whole);
        break;
    case DCP_U64:
        memcpy(&natural, element, sizeof natural);
        snprintf(text, CONVERT_TEXT, "%" PRIu64, natural);
        break;
    case DCP_BOOL:
        snprintf(text, CONVERT_TEXT, "%s", value != 0 ? "true" : "false");
        break;
    case DCP_F64:
    case DCP_F32:
    case DCP_F16:
    case DCP_BF16:
    case DCP_F8_E4M3:
    case DCP_F8_E5M2:
        snprintf(text, CONVERT_TEXT, "%.*g", digits(dtype), value);
        break;
    default:
        snprintf(text, CONVERT_TEXT, "%.0f", value);
    }
}
