/* UTF-8 as RFC 3629 has it: the shortest form, no surrogates, nothing above U+10FFFF. */
#include "text/utf8.h"

enum { FIRST_OTHER = 0x100, BYTES = 256 };

size_t text_utf8_length(unsigned char first, unsigned char *low, unsigned char *high) {
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

size_t text_utf8_character(const char *text, size_t n, size_t *invalid) {
    unsigned char low, high;
    const size_t length = text_utf8_length((unsigned char)text[0], &low, &high);
    for (size_t i = 1; i < length; i++) {
        const unsigned char byte = i < n ? (unsigned char)text[i] : 0;
        if (byte < low || byte > high) {
            *invalid = i;
            return 0;
        }
        low = 0x80, high = 0xbf;
    }
    *invalid = 1;
    return length;
}

size_t text_utf8_valid(const char *text, size_t n) {
    size_t at = 0, length, invalid;
    while (at < n && (length = text_utf8_character(text + at, n - at, &invalid))) at += length;
    return at;
}

static int is_seen(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

/* The others have U+0100 and on, in their order: 0 to ' ', DEL to U+00A0, the soft hyphen. */
static unsigned other_of(unsigned byte) {
    return FIRST_OTHER + (byte <= ' ' ? byte : byte < 0xad ? byte - 0x7f + 33 : 67);
}

size_t text_utf8_of_byte(unsigned char byte, char out[2]) {
    const unsigned character = is_seen(byte) ? byte : other_of(byte);
    const int is_one = character < 0x80;
    out[0] = (char)(is_one ? character : 0xc0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3f));
    return is_one ? 1 : 2;
}

int text_utf8_to_byte(const char *text, size_t n, size_t *length) {
    size_t invalid;
    const unsigned first = (unsigned char)text[0];
    *length = text_utf8_character(text, n, &invalid);
    if (!*length || *length > 2) return -1;
    const unsigned character =
        *length == 1 ? first : (first & 0x1f) << 6 | ((unsigned char)text[1] & 0x3f);
    if (character < BYTES) return is_seen(character) ? (int)character : -1;
    const unsigned other = character - FIRST_OTHER;
    if (other > 67) return -1;
    return (int)(other <= ' ' ? other : other < 67 ? other - 33 + 0x7f : 0xad);
}
