/* Patterns of a tokenizer.json: regular expressions and plain strings, by PCRE2. */
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stddef.h>

#include "text/part.h"

typedef struct text_pattern text_pattern;

/* DCP_ERR_ARG: it is no regular expression. DCP_ERR_UNSUPPORTED: it has what Oniguruma, which
 * `tokenizers` uses, and PCRE2 take differently. */
int text_pattern_open(const text_part *part, const char *regex, text_pattern **out, dcp_error *err);

/* The same for the part's member "pattern": {"Regex": "..."} or {"String": "..."}. */
int text_pattern_read(const text_part *part, text_pattern **out, dcp_error *err);

/* Where it is just this string. */
int text_pattern_of_string(const text_part *part, const char *string, text_pattern **out,
                           dcp_error *err);

void text_pattern_close(text_pattern *p);

/* The first match in text[0 .. n), valid UTF-8, from text[at] on: 1, and where it is. 0: none is
 * left. Else a status. `found` is memory for it, of pcre2_match_data_create(1, NULL). */
int text_pattern_next(const text_pattern *p, pcre2_match_data *found, const char *text, size_t n,
                      size_t at, size_t *start, size_t *end, dcp_error *err);
