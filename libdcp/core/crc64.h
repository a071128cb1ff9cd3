/* CRC-64/XZ, divided into the steps that a distributed checksum requires.
 *
 * The raw form (no initial or final inversion) is linear over GF(2): raw(A B) = shift(raw(A),
 * bytes(B)) ^ raw(B), and raw of zeros is 0. So each rank computes the raw form of its part, shifts
 * it past the bytes that follow, and the ranks XOR the results. core_crc64_finish then applies the
 * two inversions together, as one constant that depends only on the length. Reference: Koopman,
 * "Cyclic Redundancy Code (CRC) Polynomial Selection", and zlib's crc32_combine for the shift by a
 * power of x modulo the polynomial. */
#pragma once

#include <stdint.h>

/* Returns the CRC-64/XZ of the data; for "123456789" that is 0x995dc9bbdf1939fa. */
uint64_t core_crc64(const void *data, uint64_t bytes);

/* Returns the raw form of a message followed by the data. raw: the raw form of the message; 0 if it
 * is empty. */
uint64_t core_crc64_raw(uint64_t raw, const void *data, uint64_t bytes);

/* Like core_crc64_raw, but also copies the data to `to` in the same pass. On x86-64, all but short
 * copies bypass the processor's cache, as core_nontemporal_copy does. */
uint64_t core_crc64_copy(uint64_t raw, void *to, const void *data, uint64_t bytes);

/* Returns the raw form of a message followed by `count` zero bytes. raw: the raw form of the
 * message. */
uint64_t core_crc64_shift(uint64_t raw, uint64_t count);

/* Convert between the raw form of a message of `bytes` bytes and its CRC-64/XZ. */
uint64_t core_crc64_finish(uint64_t raw, uint64_t bytes);
uint64_t core_crc64_unfinish(uint64_t crc, uint64_t bytes);
