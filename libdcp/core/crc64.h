/* CRC-64/XZ in the parts that a distributed checksum needs.
 *
 * The raw form (no initial or final inversion) is linear over GF(2): raw(A B) = shift(raw(A),
 * bytes(B)) ^ raw(B), and raw of zeros is 0. So ranks compute the raw form of what they hold, shift
 * it past the bytes that follow, and XOR. core_crc64_finish adds the inversions' constant, which
 * depends on the length alone. Reference: Koopman, "Cyclic Redundancy Code (CRC) Polynomial
 * Selection", and zlib's crc32_combine for the shift by a power of x modulo the polynomial. */
#pragma once

#include <stdint.h>

/* CRC-64/XZ of bytes: "123456789" gives 0x995dc9bbdf1939fa. */
uint64_t core_crc64(const void *data, uint64_t bytes);

/* Raw form of (what gave `raw`, then data). Start with raw = 0. */
uint64_t core_crc64_raw(uint64_t raw, const void *data, uint64_t bytes);

/* The same, and copies the data to `to`, in one walk over them. What is written goes past the
 * processor's cache where that is worth it: `to` is for others, who read it later. */
uint64_t core_crc64_copy(uint64_t raw, void *to, const void *data, uint64_t bytes);

/* Raw form of (what gave `raw`, then `count` zero bytes). */
uint64_t core_crc64_shift(uint64_t raw, uint64_t count);

/* Raw form of a message of `bytes` bytes <-> its CRC-64/XZ. */
uint64_t core_crc64_finish(uint64_t raw, uint64_t bytes);
uint64_t core_crc64_unfinish(uint64_t crc, uint64_t bytes);
