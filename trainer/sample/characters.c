#include "sample/characters.h"

#include "text/utf8.h"

/* Whether the byte continues what is begun. */
static int continues(const sample_characters *c, unsigned char byte) {
    unsigned char low, high;
    text_utf8_length(c->begun[0], &low, &high);
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
    const size_t length = text_utf8_length(c->begun[0], &low, &high);
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
