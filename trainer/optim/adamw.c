/* PyTorch's AdamW over shards: element by element, so that cuts change no bit. */
#include "adamw.h"

#include <stdlib.h>

#include "../fail.h"
#include "../fsdp/globs.h"

enum { PIECE_ELEMS = 1 << 20 };

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

/* Offloaded memory is worked on in pieces, and let go of after each. */
static void update(const adamw *a, const train_state *s, const fsdp_param *param,
                   const kernels_adamw *options) {
    const uint64_t most = s->offloaded ? PIECE_ELEMS : param->elems;
    for (uint64_t first = 0; first < param->elems; first += most) {
        const uint64_t left = param->elems - first, n = left < most ? left : most;
        const uint64_t at = param->grad_at + first, bytes = n * sizeof(float);
        float *params = s->params + param->param_at + first;
        a->k->adamw(a->k, params, s->exp_avg + at, s->exp_avg_sq + at, s->grads + at, n, options);
        if (!s->offloaded) continue;
        offload_release(s->offloaded, params, bytes);
        offload_release(s->offloaded, s->exp_avg + at, bytes);
        offload_release(s->offloaded, s->exp_avg_sq + at, bytes);
    }
}

void adamw_step(const adamw *a, const train_state *s, double lr, double grad_scale) {
    kernels_adamw options = a->options;
    options.lr = lr;
    options.grad_scale = grad_scale;
    options.step = s->step + 1;
    const unsigned char *decays = a->decays;
    for (size_t u = 0; u < a->layout->n; u++)
        for (size_t i = 0; i < a->layout->units[u].n; i++) {
            const fsdp_param *param = &a->layout->units[u].params[i];
            options.weight_decay = *decays++ ? a->options.weight_decay : 0;
            if (!param->info.frozen) update(a, s, param, &options);
        }
}
