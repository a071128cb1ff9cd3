/* dcp_convert compared with independent formulas: every pattern of the 8- and 16-bit types, the
 * middles between neighbours, and many patterns of the wider ones; which pairs exist; and
 * overlapping memory, as in a cast in place. */
#include <math.h>

#include "dcp/tensor.h"
#include "support/core_fixture.h"

typedef struct format {
    dcp_dtype dtype;
    int exponent_bits, mantissa_bits;
    uint32_t largest; /* pattern of the largest number */
    uint32_t beyond;  /* the result for larger values */
    uint32_t nan;
} format;

static const format small_floats[] = {
    {DCP_F16, 5, 10, 0x7bff, 0x7c00, 0x7e00},
    {DCP_BF16, 8, 7, 0x7f7f, 0x7f80, 0x7fc0},
    {DCP_F8_E4M3, 4, 3, 0x7e, 0x7f, 0x7f},
    {DCP_F8_E5M2, 5, 2, 0x7b, 0x7c, 0x7f},
};

/* The number that a pattern without sign would be if the format had no special ones. */
static double number(const format *f, uint32_t pattern) {
    int exponent = (int)(pattern >> f->mantissa_bits), bias = (1 << (f->exponent_bits - 1)) - 1;
    uint32_t mantissa = pattern & ((1u << f->mantissa_bits) - 1);
    if (!exponent) return ldexp(mantissa, 1 - bias - f->mantissa_bits);
    return ldexp(mantissa + (1u << f->mantissa_bits), exponent - bias - f->mantissa_bits);
}

static uint32_t sign_of(const format *f, int negative) {
    return negative ? 1u << (f->exponent_bits + f->mantissa_bits) : 0;
}

/* The nearest of all patterns; the even one if two are equally near. */
static uint32_t nearest(const format *f, double value) {
    uint32_t low = 0, high = f->largest + 1, sign = sign_of(f, signbit(value) != 0);
    double size = fabs(value);
    if (isnan(value)) return sign | f->nan;
    if (size >= number(f, high)) return sign | f->beyond;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        *(number(f, middle) <= size ? &low : &high) = middle;
    }
    double below = size - number(f, low), above = number(f, high) - size;
    uint32_t best = below < above || (below == above && low % 2 == 0) ? low : high;
    return sign | (best > f->largest ? f->beyond : best);
}

static uint32_t load_pattern(dcp_dtype dtype, const void *p) {
    uint32_t pattern = 0;
    memcpy(&pattern, p, dcp_dtype_bytes(dtype));
    return pattern;
}

static void check_narrowing(dcp_dtype from, const void *element, double value) {
    for (size_t k = 0; k < sizeof small_floats / sizeof *small_floats; k++) {
        const format *f = &small_floats[k];
        if (f->dtype == from) continue;
        unsigned char out[8] = {0};
        assert_int_equal(dcp_convert(from, element, f->dtype, out, 1), DCP_OK);
        assert_int_equal(load_pattern(f->dtype, out), nearest(f, value));
    }
}

static void check_f64(double value) { check_narrowing(DCP_F64, &value, value); }

static void check_pattern(const format *f, uint32_t pattern) {
    uint32_t sign = sign_of(f, 1), bare = pattern & (sign - 1);
    unsigned char in[4], back[4] = {0};
    memcpy(in, &pattern, sizeof in);
    double value = number(f, bare), wide = 0;
    float f32 = 0;
    if (bare > f->largest)
        value = f->beyond == f->nan || bare > f->beyond ? (double)NAN : (double)INFINITY;
    value = copysign(value, pattern & sign ? -1 : 1);
    assert_int_equal(dcp_convert(f->dtype, in, DCP_F64, &wide, 1), DCP_OK);
    assert_int_equal(dcp_convert(f->dtype, in, DCP_F32, &f32, 1), DCP_OK);
    assert_true(isnan(value) ? isnan(wide) && isnan(f32) : wide == value && f32 == (float)value);
    assert_true(!signbit(value) == !signbit(wide) && !signbit(value) == !signbit(f32));
    assert_int_equal(dcp_convert(DCP_F32, &f32, f->dtype, back, 1), DCP_OK);
    uint32_t returned = load_pattern(f->dtype, back);
    assert_int_equal(returned, isnan(value) ? (pattern & sign) | f->nan : pattern);
    check_narrowing(f->dtype, in, value);
}

static void every_small_pattern(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof small_floats / sizeof *small_floats; k++) {
        const format *f = &small_floats[k];
        for (uint32_t pattern = 0; pattern < 2 * sign_of(f, 1); pattern++)
            check_pattern(f, pattern);
    }
}

static void halves_go_to_the_even_one(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof small_floats / sizeof *small_floats; k++) {
        const format *f = &small_floats[k];
        for (uint32_t low = 0; low <= f->largest; low++) {
            double middle = (number(f, low) + number(f, low + 1)) / 2;
            uint32_t even = low % 2 ? low + 1 : low, got = 0;
            assert_int_equal(dcp_convert(DCP_F64, &middle, f->dtype, &got, 1), DCP_OK);
            assert_int_equal(got, even > f->largest ? f->beyond : even);
            check_f64(nextafter(middle, 0));
            check_f64(-nextafter(middle, 2 * middle));
        }
    }
}

static void wide_patterns(void **state) {
    (void)state;
    for (int i = 0; i < 300000; i++) {
        uint64_t bits = any() ^ any() << 32;
        uint32_t half = (uint32_t)bits;
        double f64, widened;
        float f32, narrowed;
        memcpy(&f64, &bits, sizeof f64);
        memcpy(&f32, &half, sizeof f32);
        check_f64(f64);
        check_narrowing(DCP_F32, &f32, (double)f32);
        dcp_convert(DCP_F32, &f32, DCP_F64, &widened, 1);
        dcp_convert(DCP_F64, &f64, DCP_F32, &narrowed, 1);
        assert_true(isnan(f32) ? isnan(widened) : widened == (double)f32);
        assert_true(isnan(f64) ? isnan(narrowed) : narrowed == (float)f64);
    }
    check_f64(0);
    check_f64(-0.0);
    check_f64(0x1p-1074);
    check_f64(1e308);
    check_f64(-(double)INFINITY);
}

/* The types to which each type can be converted, besides itself: names between spaces. */
static const char *const targets[DCP_DTYPE_COUNT] = {
    [DCP_F64] = " F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 C64 C128 ",
    [DCP_F32] = " F64 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 C64 C128 ",
    [DCP_F16] = " F64 F32 BF16 F8_E4M3 F8_E5M2 F8_E8M0 C64 C128 ",
    [DCP_BF16] = " F64 F32 F16 F8_E4M3 F8_E5M2 F8_E8M0 C64 C128 ",
    [DCP_F8_E4M3] = " F64 F32 F16 BF16 F8_E5M2 F8_E8M0 C64 C128 ",
    [DCP_F8_E5M2] = " F64 F32 F16 BF16 F8_E4M3 F8_E8M0 C64 C128 ",
    [DCP_F8_E8M0] = " F64 F32 F16 BF16 F8_E4M3 F8_E5M2 C64 C128 ",
    [DCP_I64] = "",
    [DCP_I32] = " F64 I64 C128 ",
    [DCP_I16] = " F64 F32 I64 I32 C64 C128 ",
    [DCP_I8] = " F64 F32 F16 BF16 I64 I32 I16 C64 C128 ",
    [DCP_U64] = "",
    [DCP_U32] = " F64 I64 U64 C128 ",
    [DCP_U16] = " F64 F32 I64 I32 U64 U32 C64 C128 ",
    [DCP_U8] = " F64 F32 F16 BF16 I64 I32 I16 U64 U32 U16 C64 C128 ",
    [DCP_BOOL] = "",
    [DCP_C64] = " C128 ",
    [DCP_C128] = " C64 ",
};

static int is_possible(dcp_dtype from, dcp_dtype to) {
    char name[16];
    snprintf(name, sizeof name, " %s ", dcp_dtype_name(to));
    return from == to || strstr(targets[from], name) != NULL;
}

static void which_pairs_there_are(void **state) {
    (void)state;
    for (dcp_dtype from = DCP_F64; from < DCP_DTYPE_COUNT; from++)
        for (dcp_dtype to = DCP_F64; to < DCP_DTYPE_COUNT; to++) {
            int status = dcp_convert(from, NULL, to, NULL, 0);
            assert_int_equal(status, is_possible(from, to) ? DCP_OK : DCP_ERR_UNSUPPORTED);
        }
    uint32_t in = 0, out = 0;
    assert_int_equal(dcp_convert(DCP_DTYPE_NONE, &in, DCP_F32, &out, 1), DCP_ERR_ARG);
    assert_int_equal(dcp_convert(DCP_F32, &in, DCP_DTYPE_NONE, &out, 1), DCP_ERR_ARG);
    assert_int_equal(dcp_convert(DCP_DTYPE_COUNT, &in, DCP_F32, &out, 1), DCP_ERR_ARG);
    assert_int_equal(dcp_convert(DCP_F32, &in, (dcp_dtype)-1, &out, 1), DCP_ERR_ARG);
    assert_int_equal(dcp_convert(DCP_F32, NULL, DCP_F16, &out, 1), DCP_ERR_ARG);
    assert_int_equal(dcp_convert(DCP_F32, &in, DCP_F16, NULL, 1), DCP_ERR_ARG);
}

/* Stores a whole number. Returns 0 if the type cannot hold it. */
static int store_whole(dcp_dtype dtype, int64_t value, unsigned char *out) {
    double f64 = (double)value;
    float f32 = (float)value;
    memset(out, 0, 8);
    if (dtype == DCP_F64) return memcpy(out, &f64, sizeof f64), 1;
    if (dtype == DCP_F32) return memcpy(out, &f32, sizeof f32), 1;
    for (int k = 0; k < 2; k++)
        if (small_floats[k].dtype == dtype) {
            uint32_t pattern = nearest(&small_floats[k], f64);
            return memcpy(out, &pattern, 2), 1;
        }
    int bits = 8 * (int)dcp_dtype_bytes(dtype), is_signed = dtype < DCP_U64;
    int64_t least = is_signed ? (int64_t)(UINT64_MAX << (bits - 1)) : 0;
    if (value < least || (bits < 64 && value >= (int64_t)1 << (bits - is_signed))) return 0;
    memcpy(out, &value, (size_t)bits / 8);
    return 1;
}

static void integers_keep_their_values(void **state) {
    (void)state;
    static const int64_t edges[] = {INT32_MIN, INT32_MIN + 1, INT32_MAX, UINT32_MAX, 1 << 24};
    for (dcp_dtype from = DCP_I64; from < DCP_BOOL; from++)
        for (dcp_dtype to = DCP_F64; to < DCP_BOOL; to++)
            for (int64_t v = -40000; v < 70005 && is_possible(from, to); v++) {
                unsigned char in[8], want[8], got[8] = {0};
                int64_t value = v < 70000 ? v : edges[v - 70000];
                if (!store_whole(from, value, in)) continue;
                assert_true(store_whole(to, value, want));
                assert_int_equal(dcp_convert(from, in, to, got, 1), DCP_OK);
                assert_memory_equal(got, want, sizeof want);
            }
}

static unsigned e8m0_of(double value) {
    unsigned char out;
    float f32 = (float)value;
    assert_int_equal(dcp_convert(DCP_F64, &value, DCP_F8_E8M0, &out, 1), DCP_OK);
    if ((double)f32 == value) {
        unsigned char again;
        assert_int_equal(dcp_convert(DCP_F32, &f32, DCP_F8_E8M0, &again, 1), DCP_OK);
        assert_int_equal(again, out);
    }
    return out;
}

/* The expected values are those of ml_dtypes 0.6.0. */
static void powers_of_two_and_what_is_none(void **state) {
    (void)state;
    for (unsigned pattern = 0; pattern < 256; pattern++) {
        unsigned char in = (unsigned char)pattern;
        double value;
        float f32;
        uint16_t bf16;
        assert_int_equal(dcp_convert(DCP_F8_E8M0, &in, DCP_F64, &value, 1), DCP_OK);
        assert_int_equal(dcp_convert(DCP_F8_E8M0, &in, DCP_F32, &f32, 1), DCP_OK);
        assert_int_equal(dcp_convert(DCP_F8_E8M0, &in, DCP_BF16, &bf16, 1), DCP_OK);
        assert_int_equal(e8m0_of(value), pattern);
        if (pattern == 255)
            assert_true(isnan(value) && isnan(f32) && bf16 == 0x7fc0);
        else
            assert_true(value == ldexp(1, (int)pattern - 127) && (double)f32 == value &&
                        bf16 == (pattern ? pattern << 7 : 0x40));
    }
    for (unsigned pattern = 1; pattern < 255; pattern++) {
        double low = ldexp(1, (int)pattern - 127);
        assert_int_equal(e8m0_of(1.25 * low), pattern);
        assert_int_equal(e8m0_of(nextafter(1.5 * low, 0)), pattern);
        assert_int_equal(e8m0_of(1.5 * low), pattern + 1); /* after 2^127: NaN */
        assert_int_equal(e8m0_of(1.75 * low), pattern + 1);
    }
    assert_int_equal(e8m0_of(nextafter(0x1p-127, 1)), 1);
    assert_int_equal(e8m0_of(0x1p-128), 0);
    assert_int_equal(e8m0_of(0x1p-149), 0);
    assert_int_equal(e8m0_of(5e-324), 0);
    const double none[] = {0,
                           -0.0,
                           -1,
                           -0x1p-127,
                           -1e300,
                           1e308,
                           (double)INFINITY,
                           (double)NAN,
                           -(double)INFINITY,
                           -(double)NAN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_int_equal(e8m0_of(none[i]), 255);
}

static void complex_numbers_have_two_parts(void **state) {
    (void)state;
    const float c64[] = {1.5f, -0.1f, (float)NAN, -(float)INFINITY};
    const uint16_t bf16[] = {0x3fc0, 0xff80};
    double c128[4], large[] = {1e300, 0.1};
    float narrow[4];
    assert_int_equal(dcp_convert(DCP_C64, c64, DCP_C128, c128, 2), DCP_OK);
    assert_true(c128[0] == 1.5 && c128[1] == (double)-0.1f);
    assert_true(isnan(c128[2]) && c128[3] == -(double)INFINITY);
    assert_int_equal(dcp_convert(DCP_C128, c128, DCP_C64, narrow, 1), DCP_OK);
    assert_memory_equal(narrow, c64, 8);
    assert_int_equal(dcp_convert(DCP_C128, large, DCP_C64, narrow, 1), DCP_OK);
    assert_true(narrow[0] == INFINITY && narrow[1] == 0.1f);
    assert_int_equal(dcp_convert(DCP_BF16, bf16, DCP_C64, narrow, 2), DCP_OK);
    assert_true(narrow[0] == 1.5f && narrow[1] == 0 && !signbit(narrow[1]));
    assert_true(narrow[2] == -INFINITY && narrow[3] == 0);
}

static void foreign_names(void **state) {
    (void)state;
    static const char *const left_out[] = {"F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4", "F6_E2M3",
                                           "F6_E3M2"};
    dcp_dtype dtype;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        assert_int_equal(dcp_dtype_parse(left_out[i], &dtype), DCP_ERR_UNSUPPORTED);
    assert_int_equal(dcp_dtype_parse("F31", &dtype), DCP_ERR_NOT_FOUND);
    assert_int_equal(dcp_dtype_parse("C128", &dtype), DCP_OK);
    assert_int_equal(dtype, DCP_C128);
}

/* Widens from the end of the target's memory, and does everything else from its beginning. */
static void it_works_in_place(void **state) {
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 1023, 1024, 1025, 5001};
    for (dcp_dtype from = DCP_F64; from < DCP_DTYPE_COUNT; from++)
        for (dcp_dtype to = DCP_F64; to < DCP_DTYPE_COUNT; to++)
            for (size_t k = 0; k < sizeof counts / sizeof *counts && is_possible(from, to); k++) {
                uint64_t in_bytes = counts[k] * dcp_dtype_bytes(from);
                uint64_t out_bytes = counts[k] * dcp_dtype_bytes(to);
                uint64_t all = in_bytes > out_bytes ? in_bytes : out_bytes;
                unsigned char *in = any_bytes(in_bytes), *want = malloc(all), *have = malloc(all);
                assert_non_null(want);
                assert_non_null(have);
                unsigned char *at = have + (out_bytes > in_bytes ? out_bytes - in_bytes : 0);
                memcpy(at, in, in_bytes);
                assert_int_equal(dcp_convert(from, in, to, want, counts[k]), DCP_OK);
                assert_int_equal(dcp_convert(from, at, to, have, counts[k]), DCP_OK);
                assert_memory_equal(have, want, out_bytes);
                free(in);
                free(want);
                free(have);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_pattern),
        cmocka_unit_test(halves_go_to_the_even_one),
        cmocka_unit_test(wide_patterns),
        cmocka_unit_test(which_pairs_there_are),
        cmocka_unit_test(integers_keep_their_values),
        cmocka_unit_test(powers_of_two_and_what_is_none),
        cmocka_unit_test(complex_numbers_have_two_parts),
        cmocka_unit_test(foreign_names),
        cmocka_unit_test(it_works_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
