/* Fixed-point summation (Kulisch). A double's 53 bits touch at most three limbs; each limb has 32
 * bits of room above its digits, so carries are needed only every 2^31 additions. */
#include "optim/grad_norm.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

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
    assert(x >= 0 || !isfinite(x));
    kernels_limbs_add(sum->limbs, x);
    if (++sum->pending >> 31) optim_exact_carry(sum);
}

/* The conversion rounds the topmost 64 bits; the bits below them only break ties. */
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
    bool below = (shift ? third << shift : third) != 0;
    for (size_t i = 0; i + 3 < top; i++) below |= sum->limbs[i] != 0;
    digits |= (uint64_t)below; /* bit 0 can only break ties: it is far below a double's last bit */
    const int scale = ((int)top - 2) * LIMB_BITS - shift + LOWEST;
    if (scale >= LOWEST) return ldexp((double)digits, scale);
    return ldexp((double)(digits >> (LOWEST - scale)), LOWEST); /* subnormal: exact */
}

double optim_exact_sum_of_ranks(exact_sum *sum, MPI_Comm comm) {
    optim_exact_carry(sum);
    MPI_Allreduce(MPI_IN_PLACE, sum->limbs, EXACT_LIMBS + 1, MPI_UINT64_T, MPI_SUM, comm);
    return optim_exact_value(sum);
}

/* Rows are distributed over ranks but never split, so a single rank computes the sum of each row,
 * in a fixed order. */

static uint64_t rows_of(const fsdp_param *param) {
    return param->row_elems ? param->elems / param->row_elems : 0;
}

static uint64_t all_rows(const fsdp_layout *layout) {
    uint64_t rows = 0;
    for (size_t i = 0; i < layout->n_params; i++)
        if (!layout->params[i].info.frozen) rows += rows_of(&layout->params[i]);
    return rows;
}

/* The scratch memory consists of SUM_ELEMS limbs, then the sums of all rows. */
enum { SUM_ELEMS = KERNELS_LIMBS + 1 };

size_t optim_norm_scratch_bytes(const fsdp_layout *layout) {
    return SUM_ELEMS * sizeof(uint64_t) + all_rows(layout) * sizeof(double);
}

/* Contiguous rows of equal length, of one or more parameters. */
typedef struct stretch {
    uint64_t at, rows, row_elems;
} stretch;

static bool continues(const stretch *s, const fsdp_param *param, uint64_t at) {
    return s->row_elems == param->row_elems && s->at + s->rows * s->row_elems == at;
}

/* Writes the sum of squares of each row to `out`. Returns the end of these sums. */
static double *sum_rows(kernels *k, double *out, const float *values, const stretch *s) {
    if (s->rows > 0) k->row_sumsq(k, out, values + s->at, s->rows, s->row_elems);
    return out + s->rows;
}

/* Whether the values are laid out like parameters, or like gradients and slots. */
typedef enum layout_of { OF_PARAMS, OF_GRADS } layout_of;

static double *sum_all_rows(const fsdp_layout *layout, kernels *k, double *out, layout_of of,
                            const float *values) {
    stretch s = {0};
    for (size_t i = 0; i < layout->n_params; i++) {
        const fsdp_param *param = &layout->params[i];
        const uint64_t rows = rows_of(param);
        const uint64_t at = of == OF_PARAMS ? param->param_at : param->grad_at;
        if (rows == 0 || param->info.frozen) continue;
        if (!continues(&s, param, at)) {
            out = sum_rows(k, out, values, &s);
            s = (stretch){.at = at, .row_elems = param->row_elems};
        }
        s.rows += rows;
    }
    return sum_rows(k, out, values, &s);
}

static double norm_of(const fsdp_layout *layout, kernels *k, MPI_Comm comm, layout_of of,
                      const float *values, void *scratch) {
    uint64_t *on_device = scratch;
    exact_sum all = {0};
    double *rows = (double *)(on_device + SUM_ELEMS);
    k->zero(k, scratch, 2 * SUM_ELEMS);
    const double *end = sum_all_rows(layout, k, rows, of, values);
    if (end > rows) k->exact_add(k, on_device, rows, (size_t)(end - rows));
    /* the span ends here, so that it does not contain the time in which optim_exact_sum_of_ranks
     * waits for the other ranks */
    k->span(k, KERNELS_NO_SPAN);
    k->download(k, all.limbs, scratch, sizeof all.limbs);
    return sqrt(optim_exact_sum_of_ranks(&all, comm));
}

double optim_norm_of_shards(const fsdp_layout *layout, kernels *k, MPI_Comm comm,
                            const float *grads, void *scratch) {
    return norm_of(layout, k, comm, OF_GRADS, grads, scratch);
}

bool optim_is_finite(const fsdp_layout *layout, kernels *k, MPI_Comm comm, const float *params,
                     void *scratch) {
    return isfinite(norm_of(layout, k, comm, OF_PARAMS, params, scratch)) != 0;
}
