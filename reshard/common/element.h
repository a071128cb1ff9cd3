/* Elements as numbers and as text, and JSON for people. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include <dcp/tensor.h>

/* JSON for people: indented, and reals as short as possible. */

/* `value` with jansson's `flags` besides; malloc'd, NULL: out of memory. */
char *json_text(const json_t *value, size_t flags);

/* Writes `value` and a newline, with jansson's `flags` besides. 0, or -1 with errno. */
int json_text_write(const json_t *value, size_t flags, FILE *out);

/* The same, sorted by keys, as the new file `path`; releases `value`. An exit status. */
int json_text_write_file(json_t *value, const char *path);

/* Elements as numbers: reading any dtype as fp64, and as text. */

/* The real types that a cast may come from: neither integers nor booleans. */
int element_is_float(dcp_dtype dtype);
int element_is_complex(dcp_dtype dtype);

/* out[n] = in[n] as fp64: exact but for 64-bit integers over 2^53; of complex numbers the absolute
 * value, which is rounded. */
void element_to_f64(dcp_dtype dtype, const void *in, uint64_t n, double *out);

/* The same as real and imaginary parts, out[2 n]; those of real numbers are 0. */
void element_to_complex(dcp_dtype dtype, const void *in, uint64_t n, double *out);

/* Whether the type is an integer or a boolean; and the exact value of such an element. */
int element_is_integer(dcp_dtype dtype);
__int128 element_integer(dcp_dtype dtype, const void *element);

/* One element as text: "-1.5", "7", "nan", "true", "1-0.5j". Reals get as many digits as tell any
 * two apart. */
#define ELEMENT_TEXT 64
#define ELEMENT_BYTES 16 /* of the largest type */
void element_print(dcp_dtype dtype, const void *element, char *text);
