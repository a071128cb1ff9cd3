/* Words that people type. */
#pragma once

#include <stddef.h>

/* Levenshtein's distance: how many letters are put in, left out or replaced. Of words of more than
 * 255 letters the first ones count. */
size_t program_word_distance(const char *a, const char *b);
