/* jansson prints all reals of a value with the same number of digits. This file makes it use the
 * smallest number of digits with which all of these reals read back unchanged: 1e-6 remains 1e-6
 * and does not become 9.9999999999999995e-7. */
#include "common/element.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/json_read.h"
#include "programs/program.h"

char *json_text(const json_t *value, size_t flags) {
    return core_json_exact(value, flags | JSON_INDENT(2));
}

int json_text_write(const json_t *value, size_t flags, FILE *out) {
    char *text = json_text(value, flags);
    if (!text) errno = ENOMEM;
    int status = text && fputs(text, out) >= 0 && fputc('\n', out) != EOF ? 0 : -1;
    free(text);
    return status;
}

int json_text_write_file(json_t *value, const char *path) {
    FILE *out = fopen(path, "wx");
    bool failed = !out || json_text_write(value, JSON_SORT_KEYS, out);
    if (out) failed |= fclose(out) != 0;
    json_decref(value);
    return failed ? program_fail_errno("cannot write", path) : 0;
}

/* Conversions that dcp_convert does not offer: from 64-bit integers and booleans, from complex
 * numbers to their absolute values, and to text. */

bool element_is_float(dcp_dtype dtype) {
    return !element_is_integer(dtype) && !element_is_complex(dtype);
}

bool element_is_complex(dcp_dtype dtype) { return dtype == DCP_C64 || dtype == DCP_C128; }

enum { BATCH = 256 };

static void moduli(dcp_dtype dtype, const char *in, uint64_t n, double *out) {
    const uint64_t size = dcp_dtype_bytes(dtype);
    double parts[2 * BATCH];
    for (uint64_t i = 0; i < n; i += BATCH) {
        const uint64_t m = n - i < BATCH ? n - i : BATCH;
        dcp_convert(dtype, in + i * size, DCP_C128, parts, m);
        for (uint64_t k = 0; k < m; k++) {
            const double re = parts[2 * k], im = parts[2 * k + 1];
            out[i + k] = isnan(re) || isnan(im) ? (double)NAN : hypot(re, im);
        }
    }
}

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
    case DCP_C64:
    case DCP_C128:
        moduli(dtype, in, n, out);
        break;
    default:
        dcp_convert(dtype, in, DCP_F64, out, n);
    }
}

void element_to_complex(dcp_dtype dtype, const void *in, uint64_t n, double *out) {
    if (element_is_complex(dtype)) {
        dcp_convert(dtype, in, DCP_C128, out, n);
        return;
    }
    element_to_f64(dtype, in, n, out);
    for (uint64_t i = n; i-- > 0;) {
        out[2 * i] = out[i];
        out[2 * i + 1] = 0;
    }
}

bool element_is_integer(dcp_dtype dtype) {
    return dtype != DCP_F64 && dtype != DCP_F32 && dtype != DCP_F16 && dtype != DCP_BF16 &&
           dtype != DCP_F8_E4M3 && dtype != DCP_F8_E5M2 && dtype != DCP_F8_E8M0 &&
           !element_is_complex(dtype);
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
    if (dtype == DCP_F64 || dtype == DCP_C128) return 17;
    if (dtype == DCP_F32 || dtype == DCP_C64) return 9;
    return dtype == DCP_F16 ? 5 : 4;
}

void element_print(dcp_dtype dtype, const void *element, char *text) {
    int64_t whole;
    uint64_t natural;
    double value = 0, parts[2] = {0};
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
    case DCP_F8_E8M0:
        snprintf(text, ELEMENT_TEXT, "%.*g", digits(dtype), value);
        break;
    case DCP_C64:
    case DCP_C128:
        element_to_complex(dtype, element, 1, parts);
        snprintf(text, ELEMENT_TEXT, "%.*g%+.*gj", digits(dtype), parts[0], digits(dtype),
                 parts[1]);
        break;
    default:
        snprintf(text, ELEMENT_TEXT, "%.0f", value);
    }
}
