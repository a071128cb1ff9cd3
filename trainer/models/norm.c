/* RMSNorm and LayerNorm: which of them, the bias tells. */
#include "models/norm.h"

#include "models/operand.h"

void model_norm_lay_out(const norm *n, arena *a, size_t rows, norm_stats *out) {
    const int used = n->dim > 0;
    out->mean = model_arena_floats(a, used && n->bias != NO_PLACE ? rows : 0, 1);
    out->rstd = model_arena_floats(a, used ? rows : 0, 1);
}

void model_norm_forward(model_run *run, const norm *n, void *out, const float *in, size_t rows,
                        const float *const *params, const norm_stats *stats) {
    kernels *k = run->k;
    const float *weight = model_operand_rounded(run, 0, params[n->weight], n->dim);
    if (n->bias == NO_PLACE)
        k->rmsnorm_forward(k, out, run->m->type, stats->rstd, in, weight, rows, n->dim, n->eps);
    else
        k->layernorm_forward(k, out, run->m->type, stats->mean, stats->rstd, in, weight,
                             model_operand_rounded(run, 1, params[n->bias], n->dim), rows, n->dim,
                             n->eps);
}

void model_norm_backward(model_run *run, const norm *n, float *dx, const float *dout,
                         const float *in, size_t rows, const float *const *params,
                         float *const *grads, const norm_stats *stats, unsigned add) {
    kernels *k = run->k;
    const float *weight = model_operand_rounded(run, 0, params[n->weight], n->dim);
    float *dweight = grads[n->weight] ? grads[n->weight] : run->unwanted;
    const int goes_on = dx == run->dstream && run->m->type == KERNELS_BF16;
    uint16_t *rounded = goes_on ? run->dstream_rounded : NULL;
    if (n->bias == NO_PLACE)
        k->rmsnorm_backward(k, dx, rounded, dweight, dout, in, weight, stats->rstd, rows, n->dim,
                            add);
    else
        k->layernorm_backward(k, dx, rounded, dweight,
                              grads[n->bias] ? grads[n->bias] : run->unwanted, dout, in, weight,
                              stats->mean, stats->rstd, rows, n->dim, add);
}
