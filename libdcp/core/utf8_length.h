/* UTF-8, as RFC 3629 has it. */
#pragma once

#include <stddef.h>

/* The length of the character at `s`, which a NUL ends at the latest; 0 where it is malformed. */
static inline size_t core_utf8_length(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    if (s[0] >= 0xf5) n = 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    int overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    int beyond = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

static inline int core_utf8_is_valid(const char *text, size_t length) {
    unsigned char any = 0;
    for (size_t i = 0; i < length; i++) any |= (unsigned char)text[i];
    if (any < 0x80) return 1;
    for (size_t i = 0, n; i < length; i += n)
        if (!(n = core_utf8_length((const unsigned char *)text + i))) return 0;
    return 1;
}
