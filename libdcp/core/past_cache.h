/* Copies whose bytes are for others, who read them later: the processor's cache keeps what the
 * program has in it. */
#pragma once

#include <stdint.h>

/* As memcpy. Other threads see the bytes once this one has called core_past_cache_end. */
void core_past_cache_copy(void *to, const void *from, uint64_t bytes);
void core_past_cache_end(void);
