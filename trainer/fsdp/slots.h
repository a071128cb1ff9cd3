/* Numbers for transfers on their way, by which a transport finds what it keeps for each. */
#ifndef TRAINER_FSDP_SLOTS_H
#define TRAINER_FSDP_SLOTS_H

#include <stddef.h>
#include <stdint.h>

enum { FSDP_SLOTS = 64 }; /* more than fsdp ever has on their way */

/* A bit for each that is taken. */
typedef uint64_t fsdp_slots;

/* The lowest free one, which is taken then; -1: there is none. */
static inline int fsdp_slot_take(fsdp_slots *slots) {
    if (*slots == UINT64_MAX) return -1;
    const int slot = __builtin_ctzll(~*slots);
    *slots |= (uint64_t)1 << slot;
    return slot;
}

static inline void fsdp_slot_free(fsdp_slots *slots, ptrdiff_t slot) {
    *slots &= ~((uint64_t)1 << slot);
}

#endif
