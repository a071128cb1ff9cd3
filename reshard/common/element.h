/* Elements as numbers and as text, and readable JSON. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include <dcp/tensor.h>

/* Readable JSON: indented, with reals as short as possible. */

/* Formats `value`; `flags` are additional flags of jansson. Returns malloc'd text, or NULL if out
 * of memory. */
char *json_text(const json_t *value, size_t flags);

/* Writes `value` and a newline; `flags` are additional flags of jansson. Returns 0, or -1 with
 * errno. */
int json_text_write(const json_t *value, size_t flags, FILE *out);

/* Writes `value`, sorted by keys, as the new file `path`, and releases it. Returns an exit
 * status. */
int json_text_write_file(json_t *value, const char *path);

/* Elements as numbers: reads any dtype as fp64, or as text. */

/* Returns true for real floating-point types, from which a cast can convert. Returns false for
 * integers, booleans and complex numbers. */
bool element_is_float(dcp_dtype dtype);
bool element_is_complex(dcp_dtype dtype);

/* out[n] = in[n] as fp64. Exact, except for 64-bit integers whose magnitude is above 2^53. Complex
 * numbers become their absolute values, which are rounded. */
void element_to_f64(dcp_dtype dtype, const void *in, uint64_t n, double *out);

/* Converts to real and imaginary parts, out[2 n]; the imaginary parts of real numbers are 0. */
void element_to_complex(dcp_dtype dtype, const void *in, uint64_t n, double *out);

/* Returns true if the type is an integer or a boolean. element_integer returns the exact value of
 * such an element. */
bool element_is_integer(dcp_dtype dtype);
__int128 element_integer(dcp_dtype dtype, const void *element);

/* Formats one element, such as "-1.5", "7", "nan", "true" or "1-0.5j". Reals have enough digits to
 * distinguish any two values. */
#define ELEMENT_TEXT 64
#define ELEMENT_BYTES 16 /* of an element of the largest type */
void element_print(dcp_dtype dtype, const void *element, char *text);
