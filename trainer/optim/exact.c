/* Fixed-point summation (Kulisch). A double's 53 bits touch at most three limbs; each limb has 32
 * bits of room above its digits, so carries are needed only every 2^31 additions. */
#include "optim/exact.h"

#include <math.h>

enum { LIMB_BITS = 32, LOWEST = -1074 };
static const uint64_t limb_mask = 0xffffffff;

void optim_exact_carry(exact_sum *sum) {
    uint64_t carry = 0;
    for (size_t i = 0; i < EXACT_LIMBS; i++) {
        const uint64_t limb = sum->limbs[i] + carry;
        sum->limbs[i] = limb & limb_mask;
        carry = limb >> LIMB_BITS;
    }
    sum->pending = 0;
}

void optim_exact_add(exact_sum *sum, double x) {
    kernels_limbs_add(sum->limbs, x);
    if (++sum->pending >> 31) optim_exact_carry(sum);
}

/* The topmost 64 bits are rounded by the conversion; what is below them only breaks ties. */
double optim_exact_value(exact_sum *sum) {
    if (sum->limbs[EXACT_LIMBS]) return NAN;
    optim_exact_carry(sum);
    size_t top = EXACT_LIMBS;
    while (top > 0 && sum->limbs[top - 1] == 0) top--;
    if (top == 0) return 0;
    uint64_t head = sum->limbs[top - 1] << LIMB_BITS;
    if (top >= 2) head |= sum->limbs[top - 2];
    const int shift = __builtin_clzll(head);
    const uint64_t third = top >= 3 ? sum->limbs[top - 3] << LIMB_BITS : 0;
    uint64_t digits = shift ? head << shift | third >> (64 - shift) : head;
    int below = (shift ? third << shift : third) != 0;
    for (size_t i = 0; i + 3 < top; i++) below |= sum->limbs[i] != 0;
    digits |= (uint64_t)below; /* bit 0 is far below the last one that a double keeps */
    const int scale = ((int)top - 2) * LIMB_BITS - shift + LOWEST;
    if (scale >= LOWEST) return ldexp((double)digits, scale);
    return ldexp((double)(digits >> (LOWEST - scale)), LOWEST); /* subnormal: exact */
}

double optim_exact_sum_of_ranks(exact_sum *sum, MPI_Comm comm) {
    optim_exact_carry(sum);
    MPI_Allreduce(MPI_IN_PLACE, sum->limbs, EXACT_LIMBS + 1, MPI_UINT64_T, MPI_SUM, comm);
    return optim_exact_value(sum);
}
