/* Bytes that come in any parts, as UTF-8 for people: whole characters alone. */
#pragma once

#include <stddef.h>
#include <stdio.h>

typedef struct sample_characters {
    unsigned char begun[4]; /* of a character that is not whole yet */
    size_t n;
} sample_characters;

/* Writes what is whole. What cannot become a character is written as U+FFFD, as Python's
 * errors="replace" does. */
void sample_characters_put(sample_characters *c, const char *bytes, size_t n, FILE *to);
