/* UTF-8, and the characters by which byte-level tokenizers write bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* How many bytes a character has that begins so; 0: none does. Its second byte is from *low to
 * *high. */
size_t text_utf8_length(unsigned char first, unsigned char *low, unsigned char *high);

/* The length of the character at text[0], of n > 0 bytes. Where none is: 0, and *invalid is how
 * many bytes Python's errors="replace" makes one U+FFFD of. */
size_t text_utf8_character(const char *text, size_t n, size_t *invalid);

/* How many bytes from text[0] on are whole characters. */
size_t text_utf8_valid(const char *text, size_t n);

/* The character of 1 or 2 bytes that GPT-2 and its followers write for a byte: itself where that is
 * seen in Latin-1; else one from U+0100 on. Returns its length. */
size_t text_utf8_of_byte(unsigned char byte, char out[2]);

/* The byte of the character at text[0], whose length *length is; -1 where it stands for none. */
int text_utf8_to_byte(const char *text, size_t n, size_t *length);
