/* Both follow from shifts of the raw checksum: by 8 n bytes it is multiplied by x^(64 n). */
#include "device/crc64_tables.h"

#include "core/crc64.h"

#define ONE (1ULL << 63) /* x^0 */

void device_crc64_tables_fill(scheme_tables *tables) {
    for (int i = 0; i < 64; i++) tables->power[i] = core_crc64_shift(ONE, 1ULL << i);
    for (int k = 0; k < 8; k++)
        for (uint64_t value = 0; value < 256; value++)
            tables->row[k][value] = core_crc64_shift(value << 8 * k, 8 * SCHEME_THREADS);
}
