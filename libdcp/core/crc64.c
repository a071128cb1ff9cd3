/* A shift by n bytes multiplies by x^(8 n) modulo the polynomial; this factor is a product of
 * powers x^(2^i). There is a shift for every piece that is summed, and pieces can be small, so
 * products use the processor's carry-less multiplication if it has one. */
#include "core/crc64.h"

#include <isa-l.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "core/bytes.h"

#define POLYNOMIAL 0xc96c5795d7870f42ULL /* ECMA-182, reflected: bit 63 is x^0 */
#define QUOTIENT 0x4e1f23360b94b1eaULL   /* x^128 divided by the polynomial, without x^64 */

/* x^(2^i) modulo the polynomial; power[i + 1] is power[i] squared. 2^64 bytes are 2^67 bits. */
static const uint64_t power[67] = {
    0x4000000000000000ULL, 0x2000000000000000ULL, 0x0800000000000000ULL, 0x0080000000000000ULL,
    0x0000800000000000ULL, 0x0000000080000000ULL, 0xc96c5795d7870f42ULL, 0x6d5f4ad7e3c3afa0ULL,
    0xd49f7e445077d8eaULL, 0x040fb02a53c216faULL, 0x6bec35957b9ef3a0ULL, 0xb0e3bb0658964afeULL,
    0x218578c7a2dff638ULL, 0x6dbb920f24dd5cf2ULL, 0x7a140cfcdb4d5eb5ULL, 0x41b3705ecbc4057bULL,
    0xd46ab656accac1eaULL, 0x329beda6fc34fb73ULL, 0x51a4fcd4350b9797ULL, 0x314fa85637efae9dULL,
    0xacf27e9a1518d512ULL, 0xffe2a3388a4d8ce7ULL, 0x48b9697e60cc2e4eULL, 0xada73cb78dd62460ULL,
    0x3ea5454d8ce5c1bbULL, 0x5e84e3a6c70feaf1ULL, 0x90fd49b66cbd81d1ULL, 0xe2943e0c1db254e8ULL,
    0xecfa6adeca8834a1ULL, 0xf513e212593ee321ULL, 0xf36ae57331040916ULL, 0x63fbd333b87b6717ULL,
    0xbd60f8e152f50b8bULL, 0xa5ce4a8299c1567dULL, 0x0bd445f0cbdb55eeULL, 0xfdd6824e20134285ULL,
    0xcead8b6ebda2227aULL, 0xe44b17e4f5d4fb5cULL, 0x9b29c81ad01ca7c5ULL, 0x1b4366e40fea4055ULL,
    0x27bca1551aae167bULL, 0xaa57bcd1b39a5690ULL, 0xd7fce83fa1234db9ULL, 0xcce4986efea3ff8eULL,
    0x3602a4d9e65341f1ULL, 0x722b1da2df516145ULL, 0xecfc3ddd3a08da83ULL, 0x0fb96dcca83507e6ULL,
    0x125f2fe78d70f080ULL, 0x842f50b7651aa516ULL, 0x09bc34188cd9836fULL, 0xf43666c84196d909ULL,
    0xb56feb30c0df6ccbULL, 0xaa66e04ce7f30958ULL, 0xb7b1187e9af29547ULL, 0x113255f8476495deULL,
    0x8fb19f783095d77eULL, 0xaec4aacc7c82b133ULL, 0xf64e6d09218428cfULL, 0x036a72ea5ac258a0ULL,
    0x5235ef12eb7aaa6aULL, 0x2fed7b1685657853ULL, 0x8ef8951d46606fb5ULL, 0x9d58c1090f034d14ULL,
    0x36f6c59a9fdaa97bULL, 0xbe2d517d98682592ULL, 0x7bcd738fef5729f1ULL,
};

static uint64_t multiply_by_bits(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0 - (a >> 63));
        b = (b >> 1) ^ (POLYNOMIAL & (0 - (b & 1)));
    }
    return product;
}

#ifdef __x86_64__
/* Returns the upper half of the product, whose bit 63 is x^64; *low is the lower half, whose bit 63
 * is x^0. */
__attribute__((target("pclmul,sse4.1"))) static uint64_t multiply_unreduced(uint64_t a, uint64_t b,
                                                                            uint64_t *low) {
    __m128i x = _mm_cvtsi64_si128((long long)a), y = _mm_cvtsi64_si128((long long)b);
    __m128i xy = _mm_clmulepi64_si128(x, y, 0);
    uint64_t end = (uint64_t)_mm_cvtsi128_si64(xy);
    *low = (uint64_t)_mm_extract_epi64(xy, 1) << 1 | end >> 63;
    return end << 1;
}

/* Barrett's reduction: divides the product's upper half by the polynomial, and subtracts the
 * quotient times the polynomial from the product. */
__attribute__((target("pclmul,sse4.1"))) static uint64_t multiply_by_instruction(uint64_t a,
                                                                                 uint64_t b) {
    uint64_t low, unused, rest;
    uint64_t high = multiply_unreduced(a, b, &low);
    uint64_t quotient = high ^ multiply_unreduced(high, QUOTIENT, &unused);
    multiply_unreduced(quotient, POLYNOMIAL, &rest);
    return low ^ rest;
}

static uint64_t multiply_mod(uint64_t a, uint64_t b) {
    return __builtin_cpu_supports("pclmul") ? multiply_by_instruction(a, b)
                                            : multiply_by_bits(a, b);
}
#else
static uint64_t multiply_mod(uint64_t a, uint64_t b) { return multiply_by_bits(a, b); }
#endif

uint64_t core_crc64(const void *data, uint64_t bytes) { return crc64_ecma_refl(0, data, bytes); }

uint64_t core_crc64_raw(uint64_t raw, const void *data, uint64_t bytes) {
    return bytes ? ~crc64_ecma_refl(~raw, data, bytes) : raw;
}

#define PIECE_BYTES ((uint64_t)16 << 10) /* still in the first-level cache when it is copied */

uint64_t core_crc64_copy(uint64_t raw, void *to, const void *data, uint64_t bytes) {
    const unsigned char *from = data;
    unsigned char *out = to;
    for (uint64_t part; bytes; bytes -= part, from += part, out += part) {
        part = core_min_u64(PIECE_BYTES, bytes);
        raw = core_crc64_raw(raw, from, part);
        core_nontemporal_copy(out, from, part);
    }
    core_nontemporal_fence();
    return raw;
}

uint64_t core_crc64_shift(uint64_t raw, uint64_t count) {
    if (!raw) return 0;
    for (int i = 3; count; i++, count >>= 1) /* a byte is 2^3 bits */
        if (count & 1) raw = multiply_mod(power[i], raw);
    return raw;
}

/* Returns the contribution of the initial and final inversions, for a message of that length. */
static uint64_t inversions(uint64_t bytes) { return ~core_crc64_shift(~0ULL, bytes); }

uint64_t core_crc64_finish(uint64_t raw, uint64_t bytes) { return raw ^ inversions(bytes); }

uint64_t core_crc64_unfinish(uint64_t crc, uint64_t bytes) { return crc ^ inversions(bytes); }
