/* PyTorch's AdamW over shards: element by element, so that cuts change no bit. */
#include "adamw.h"

#include <stdlib.h>

#include "../fail.h"
#include "../fsdp/globs.h"

struct adamw {
    const fsdp_layout *layout;
    kernels *k;
    kernels_adamw options;
    unsigned char *decays; /* a flag a parameter, in layout order */
};

int adamw_create(const config *c, const fsdp_layout *layout, kernels *k, adamw **out,
                 dcp_error *err) {
    const int status = globs_check(layout, "optimizer.params.no_decay", c->no_decay, err);
    if (status != DCP_OK) return status;
    size_t n = 0;
    for (size_t u = 0; u < layout->n; u++) n += layout->units[u].n;
    adamw *a = calloc(1, sizeof *a);
    unsigned char *decays = calloc(n, 1);
    if (!a || !decays) {
        free(a);
        free(decays);
        return trainer_fail_memory(err, n);
    }
    for (size_t u = 0, at = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++)
            decays[at++] = !globs_match(c->no_decay, layout->units[u].params[i].info.name);
    *a = (adamw){.layout = layout, .k = k, .decays = decays};
    a->options = (kernels_adamw){
        .beta1 = c->beta1, .beta2 = c->beta2, .eps = c->eps, .weight_decay = c->weight_decay};
    *out = a;
    return DCP_OK;
}

void adamw_destroy(adamw *a) {
    if (!a) return;
    free(a->decays);
    free(a);
}

void adamw_step(const adamw *a, float *params, const float *grads, float *exp_avg,
                float *exp_avg_sq, double lr, double grad_scale, uint64_t step) {
    kernels_adamw options = a->options;
    options.lr = lr;
    options.grad_scale = grad_scale;
    options.step = step;
    const unsigned char *decays = a->decays;
    for (size_t u = 0; u < a->layout->n; u++)
        for (size_t i = 0; i < a->layout->units[u].n; i++) {
            const fsdp_param *param = &a->layout->units[u].params[i];
            const uint64_t at = param->grad_at;
            options.weight_decay = *decays++ ? a->options.weight_decay : 0;
            if (param->info.frozen) continue;
            a->k->adamw(a->k, params + param->shard_at, exp_avg + at, exp_avg_sq + at, grads + at,
                        param->elems, &options);
        }
}
