#include "sample/characters.h"

/* How many bytes a character has that begins so; 0: none does. Its second byte is from *low to
 * *high. This is UTF-8 as RFC 3629 has it: the shortest form, no surrogates, nothing above
 * U+10FFFF. */
static size_t length_of(unsigned char first, unsigned char *low, unsigned char *high) {
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Whether the byte continues what is begun. */
static int continues(const sample_characters *c, unsigned char byte) {
    unsigned char low, high;
    length_of(c->begun[0], &low, &high);
    return c->n == 1 ? byte >= low && byte <= high : byte >= 0x80 && byte <= 0xbf;
}

static void put_byte(sample_characters *c, unsigned char byte, FILE *to) {
    static const char replacement[] = "\xef\xbf\xbd";
    unsigned char low, high;
    if (c->n > 0 && !continues(c, byte)) {
        fputs(replacement, to);
        c->n = 0;
    }
    c->begun[c->n++] = byte;
    const size_t length = length_of(c->begun[0], &low, &high);
    if (c->n < length) return;
    if (length == 0)
        fputs(replacement, to);
    else
        fwrite(c->begun, 1, c->n, to);
    c->n = 0;
}

void sample_characters_put(sample_characters *c, const char *bytes, size_t n, FILE *to) {
    for (size_t i = 0; i < n; i++) put_byte(c, (unsigned char)bytes[i], to);
}
