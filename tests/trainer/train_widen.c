/* bf16 and fp16 become fp32 exactly: every one of their values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "state/widen.h"

/* The value of a format with a sign, `exponent` bits and `fraction` bits, by its definition. */
static double value(unsigned bits, int exponent, int fraction) {
    const int bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
    const int e = (int)(bits >> fraction) & top;
    const double f = (double)(bits & ((1u << fraction) - 1)), one = (double)(1 << fraction);
    const double sign = bits >> (exponent + fraction) ? -1 : 1;
    if (e == top) return f > 0 ? NAN : sign * INFINITY;
    if (e == 0) return sign * ldexp(f, 1 - bias - fraction);
    return sign * ldexp(one + f, e - bias - fraction);
}

static void check_all(dcp_dtype dtype, int exponent, int fraction) {
    for (unsigned bits = 0; bits < 1u << 16; bits++) {
        const uint16_t in = (uint16_t)bits;
        const double want = value(bits, exponent, fraction);
        float out;
        widen(&out, &in, 1, dtype);
        if (isnan(want))
            assert_true(isnan(out));
        else
            assert_true((double)out == want && !signbit(out) == !signbit(want));
    }
}

static void widens_every_value(void **state) {
    (void)state;
    check_all(DCP_F16, 5, 10);
    check_all(DCP_BF16, 8, 7);
    const float in[3] = {1.5f, -0.0f, 1e-40f};
    float out[3];
    widen(out, in, 3, DCP_F32);
    assert_memory_equal(in, out, sizeof in);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(widens_every_value)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
