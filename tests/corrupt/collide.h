/* Makes names of tensors whose checksum is the one that a test requires. */
#ifndef TESTS_COLLIDE_H
#define TESTS_COLLIDE_H

#include <stddef.h>
#include <stdint.h>

#include "core/crc64.h"

/* The letters at the end of a name to be chosen: '`' and 'a' to 'o', whose four low bits are free,
 * so that more bits can be changed than a CRC has. */
#define COLLIDE_LETTERS "aaaaaaaaaaaaaaaaaaaaaaaa"
enum { LETTERS = sizeof COLLIDE_LETTERS - 1, BITS = 4 * LETTERS };

/* A change of the CRC, as bits; it is linear in the letters' four low bits. */
typedef struct change {
    uint64_t crc;
    unsigned char letters[LETTERS];
} change;

static inline change change_of_bit(int bit) {
    static const unsigned char none[LETTERS];
    change c = {0};
    c.letters[bit / 4] = (unsigned char)(1 << bit % 4);
    c.crc = core_crc64_raw(0, c.letters, LETTERS) ^ core_crc64_raw(0, none, LETTERS);
    return c;
}

static inline void add_change(change *to, const change *c) {
    to->crc ^= c->crc;
    for (int i = 0; i < LETTERS; i++) to->letters[i] ^= c->letters[i];
}

/* Removes known changes, highest bit first: returns the slot for what is left of the CRC; NULL if
 * nothing is. */
static inline change *reduce_change(change *c, change with_top[64]) {
    while (c->crc) {
        change *known = &with_top[63 - __builtin_clzll(c->crc)];
        if (!known->crc) return known;
        add_change(c, known);
    }
    return NULL;
}

/* Changes letters at the end of a text so that its CRC changes by `crc`; 0: so that it does not
 * change. Returns 0, or -1 if there are no such letters. */
static inline int collide(char *letters, uint64_t crc) {
    change with_top[64] = {{0}}, wanted = {.crc = crc};
    int is_other = crc != 0;
    for (int bit = 0; bit < BITS; bit++) {
        change c = change_of_bit(bit), *slot = reduce_change(&c, with_top);
        if (slot) *slot = c;
        if (!slot && !is_other) {
            add_change(&wanted, &c);
            is_other = 1;
        }
    }
    if (reduce_change(&wanted, with_top)) return -1;
    for (int i = 0; i < LETTERS; i++) letters[i] = (char)(letters[i] ^ wanted.letters[i]);
    return 0;
}

#endif
