/* Casts round once, to nearest even: every bf16 and fp16 value is preserved; between two
 * neighbours, the middle is rounded to the even one, and every other value to the nearer one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/element.h"

static double decode(dcp_dtype dtype, uint16_t bits) {
    double value;
    element_to_f64(dtype, &bits, 1, &value);
    return value;
}

static uint16_t encode(dcp_dtype dtype, double value) {
    uint16_t bits;
    dcp_convert(DCP_F64, &value, dtype, &bits, 1);
    return bits;
}

/* Both neighbours have the same sign; `high` may be the infinity, which rounding treats as the
 * number that would come next. */
static void check_gap(dcp_dtype dtype, uint16_t low, double high_value) {
    uint16_t high = (uint16_t)(low + 1), even = low & 1 ? high : low;
    double middle = (decode(dtype, low) + high_value) / 2;
    assert_int_equal(encode(dtype, middle), even);
    assert_int_equal(encode(dtype, nextafter(middle, 0)), low);
    assert_int_equal(encode(dtype, nextafter(middle, middle * 2)), high);
    assert_int_equal(encode(dtype, -middle), even | 0x8000);
}

static void check_all(dcp_dtype dtype, uint16_t infinity, double after_largest) {
    for (uint16_t bits = 0; bits < infinity; bits++) {
        assert_int_equal(encode(dtype, decode(dtype, bits)), bits);
        assert_int_equal(encode(dtype, decode(dtype, bits | 0x8000)), bits | 0x8000);
        check_gap(dtype, bits,
                  bits + 1 == infinity ? after_largest : decode(dtype, (uint16_t)(bits + 1)));
    }
    assert_int_equal(encode(dtype, (double)INFINITY), infinity);
    assert_int_equal(encode(dtype, -1e300), infinity | 0x8000);
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_true(decode(DCP_BF16, 0x3fc0) == 1.5);
    check_all(DCP_BF16, 0x7f80, ldexp(1, 128));
}

static void f16_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_true(decode(DCP_F16, 0x3e00) == 1.5);
    check_all(DCP_F16, 0x7c00, 65536);
}

static void nan_stays_nan(void **state) {
    (void)state;
    uint32_t patterns[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        uint16_t bf16, f16, sign = (uint16_t)(patterns[i] >> 16 & 0x8000);
        dcp_convert(DCP_F32, &patterns[i], DCP_BF16, &bf16, 1);
        dcp_convert(DCP_F32, &patterns[i], DCP_F16, &f16, 1);
        assert_int_equal(bf16, 0x7fc0 | sign);
        assert_int_equal(f16, 0x7e00 | sign);
    }
}

static void eight_bit_floats_are_read(void **state) {
    (void)state;
    static const struct {
        dcp_dtype dtype;
        uint8_t bits;
        double value;
    } cases[] = {{DCP_F8_E4M3, 0x38, 1},       {DCP_F8_E4M3, 0x7e, 448},
                 {DCP_F8_E4M3, 0x01, 0x1p-9},  {DCP_F8_E4M3, 0xc0, -2},
                 {DCP_F8_E5M2, 0x3c, 1},       {DCP_F8_E5M2, 0x7b, 57344},
                 {DCP_F8_E5M2, 0x01, 0x1p-16}, {DCP_F8_E5M2, 0xfc, -(double)INFINITY}};
    double value;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        element_to_f64(cases[i].dtype, &cases[i].bits, 1, &value);
        assert_true(value == cases[i].value);
    }
    element_to_f64(DCP_F8_E4M3, "\x7f", 1, &value);
    assert_true(isnan(value));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(eight_bit_floats_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
