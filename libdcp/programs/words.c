#include "programs/words.h"

#include <string.h>

enum { LONGEST = 255 };

static size_t min3(size_t a, size_t b, size_t c) {
    const size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* One row of the table at a time. */
size_t program_word_distance(const char *a, const char *b) {
    size_t row[LONGEST + 1];
    const size_t n = strnlen(b, LONGEST);
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i] && i < LONGEST; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t above = row[j + 1];
            row[j + 1] = min3(above + 1, row[j] + 1, diagonal + (a[i] != b[j]));
            diagonal = above;
        }
    }
    return row[n];
}
