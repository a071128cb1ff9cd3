/* What the library's dcp_convert does not do: types that fp64 cannot hold, and text. */
#include "common/element.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int element_is_float(dcp_dtype dtype) { return !element_is_integer(dtype); }

#define TO_F64(type, expression)                                                                   \
    for (uint64_t i = 0; i < n; i++) {                                                             \
        type x;                                                                                    \
        memcpy(&x, (const char *)in + i * sizeof x, sizeof x);                                     \
        out[i] = (double)(expression);                                                             \
    }                                                                                              \
    break

void element_to_f64(dcp_dtype dtype, const void *in, uint64_t n, double *out) {
    switch (dtype) {
    case DCP_I64:
        TO_F64(int64_t, x);
    case DCP_U64:
        TO_F64(uint64_t, x);
    case DCP_BOOL:
        TO_F64(uint8_t, x != 0);
    default:
        dcp_convert(dtype, in, DCP_F64, out, n);
    }
}

int element_is_integer(dcp_dtype dtype) {
    return dtype != DCP_F64 && dtype != DCP_F32 && dtype != DCP_F16 && dtype != DCP_BF16 &&
           dtype != DCP_F8_E4M3 && dtype != DCP_F8_E5M2;
}

__int128 element_integer(dcp_dtype dtype, const void *element) {
    uint64_t natural = 0;
    double small = 0;
    if (dtype == DCP_I64 || dtype == DCP_U64) {
        memcpy(&natural, element, sizeof natural);
        return dtype == DCP_U64 ? (__int128)natural : (__int128)(int64_t)natural;
    }
    element_to_f64(dtype, element, 1, &small); /* exact */
    return (__int128)small;
}

static int digits(dcp_dtype dtype) {
    if (dtype == DCP_F64) return 17;
    if (dtype == DCP_F32) return 9;
    return dtype == DCP_F16 ? 5 : 4;
}

void element_print(dcp_dtype dtype, const void *element, char *text) {
    int64_t whole;
    uint64_t natural;
    double value = 0;
    element_to_f64(dtype, element, 1, &value);
    switch (dtype) {
    case DCP_I64:
        memcpy(&whole, element, sizeof whole);
        snprintf(text, ELEMENT_TEXT, "%" PRId64, whole);
        break;
    case DCP_U64:
        memcpy(&natural, element, sizeof natural);
        snprintf(text, ELEMENT_TEXT, "%" PRIu64, natural);
        break;
    case DCP_BOOL:
        snprintf(text, ELEMENT_TEXT, "%s", value != 0 ? "true" : "false");
        break;
    case DCP_F64:
    case DCP_F32:
    case DCP_F16:
    case DCP_BF16:
    case DCP_F8_E4M3:
    case DCP_F8_E5M2:
        snprintf(text, ELEMENT_TEXT, "%.*g", digits(dtype), value);
        break;
    default:
        snprintf(text, ELEMENT_TEXT, "%.0f", value);
    }
}
