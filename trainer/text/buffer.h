/* Bytes that grow. */
#pragma once

#include <stdlib.h>
#include <string.h>

/* Zeros: empty. The owner frees `at`. */
typedef struct text_buffer {
    char *at;
    size_t bytes, room;
} text_buffer;

/* 0: out of memory. */
static inline int text_buffer_put(text_buffer *b, const char *from, size_t bytes) {
    if (bytes > b->room - b->bytes) {
        const size_t room = 2 * (b->bytes + bytes) + 64;
        char *larger = realloc(b->at, room);
        if (!larger) return 0;
        b->at = larger;
        b->room = room;
    }
    if (bytes) memcpy(b->at + b->bytes, from, bytes);
    b->bytes += bytes;
    return 1;
}
