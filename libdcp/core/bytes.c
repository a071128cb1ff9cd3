#include "core/bytes.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#define AHEAD_BYTES ((uint64_t)16 << 10)
#define LINE_BYTES ((uint64_t)64) /* a cache line */

/* Writes whole cache lines without reading them first. Reading a line is expensive if another
 * processor or a disk used it last. Also prefetches the data that follow, because callers that
 * compute a checksum of what they copy read faster than memory delivers. If the data are in no
 * cache, this makes checksum and copy together a quarter faster. */
void core_nontemporal_copy(void *out, const void *data, uint64_t bytes) {
    unsigned char *to = out;
    const unsigned char *from = data;
    uint64_t head = -(uintptr_t)to % LINE_BYTES;
    if (bytes < 4 * LINE_BYTES) head = bytes;
    memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= LINE_BYTES; bytes -= LINE_BYTES, to += LINE_BYTES, from += LINE_BYTES) {
        const __m128i *x = (const __m128i *)from;
        _mm_prefetch((const char *)from + AHEAD_BYTES, _MM_HINT_T1); /* any address is allowed */
        __m128i *y = (__m128i *)to;
        __m128i a = _mm_loadu_si128(x), b = _mm_loadu_si128(x + 1);
        __m128i c = _mm_loadu_si128(x + 2), d = _mm_loadu_si128(x + 3);
        _mm_stream_si128(y, a);
        _mm_stream_si128(y + 1, b);
        _mm_stream_si128(y + 2, c);
        _mm_stream_si128(y + 3, d);
    }
    memcpy(to, from, bytes);
}

void core_nontemporal_fence(void) { _mm_sfence(); }
#else
void core_nontemporal_copy(void *to, const void *from, uint64_t bytes) { memcpy(to, from, bytes); }

void core_nontemporal_fence(void) {}
#endif
