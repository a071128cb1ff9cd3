/* PyTorch's AdamW over shards: element by element, so that cuts change no bit. */
#include "adamw.h"

#include <stdlib.h>

#include "../fail.h"
#include "../fsdp/globs.h"

enum { PIECE_ELEMS = 1 << 20 };

/* Parameters that lie side by side in this rank's storage and are updated alike. */
typedef struct stretch {
    uint64_t param_at, grad_at, elems;
    int decays;
} stretch;

struct adamw {
    kernels *k;
    kernels_update options;
    stretch *stretches;
    size_t n;
};

static int continues(const stretch *s, const fsdp_param *param, int decays) {
    return s->decays == decays && s->param_at + s->elems == param->param_at &&
           s->grad_at + s->elems == param->grad_at;
}

static void add_param(adamw *a, const fsdp_param *param, int decays) {
    stretch *last = a->n > 0 ? &a->stretches[a->n - 1] : NULL;
    if (param->elems == 0 || param->info.frozen) return;
    if (last && continues(last, param, decays))
        last->elems += param->elems;
    else
        a->stretches[a->n++] = (stretch){param->param_at, param->grad_at, param->elems, decays};
}

int adamw_create(const config *c, const fsdp_layout *layout, kernels *k, adamw **out,
                 dcp_error *err) {
    const int status = globs_check(layout, "optimizer.params.no_decay", c->no_decay, err);
    if (status != DCP_OK) return status;
    size_t n = 0;
    for (size_t u = 0; u < layout->n; u++) n += layout->units[u].n;
    adamw *a = calloc(1, sizeof *a);
    stretch *stretches = calloc(n, sizeof *stretches);
    if (!a || !stretches) {
        free(a);
        free(stretches);
        return trainer_fail_memory(err, n * sizeof *stretches);
    }
    *a = (adamw){.k = k, .stretches = stretches};
    a->options = (kernels_update){.rule = KERNELS_ADAMW,
                                  .weight_decay = c->weight_decay,
                                  .beta1 = c->beta1,
                                  .beta2 = c->beta2,
                                  .eps = c->eps};
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++) {
            const fsdp_param *param = &layout->units[u].params[i];
            add_param(a, param, !globs_match(c->no_decay, param->info.name));
        }
    *out = a;
    return DCP_OK;
}

void adamw_destroy(adamw *a) {
    if (!a) return;
    free(a->stretches);
    free(a);
}

/* Offloaded memory is worked on in pieces, and let go of after each. */
static void update(const adamw *a, const train_state *s, const stretch *part,
                   const kernels_update *options) {
    const uint64_t most = s->offloaded ? PIECE_ELEMS : part->elems;
    for (uint64_t first = 0; first < part->elems; first += most) {
        const uint64_t left = part->elems - first, n = left < most ? left : most;
        const uint64_t at = part->grad_at + first, bytes = n * sizeof(float);
        float *params = s->params + part->param_at + first;
        void *const slots[] = {s->exp_avg + at, s->exp_avg_sq + at};
        a->k->update(a->k, options, params, slots, s->grads + at, n);
        if (!s->offloaded) continue;
        offload_release(s->offloaded, params, bytes);
        offload_release(s->offloaded, s->exp_avg + at, bytes);
        offload_release(s->offloaded, s->exp_avg_sq + at, bytes);
    }
}

void adamw_step(const adamw *a, const train_state *s, double lr, double grad_scale) {
    kernels_update options = a->options;
    options.lr = lr;
    options.grad_scale = grad_scale;
    options.step = s->step + 1;
    for (size_t i = 0; i < a->n; i++) {
        options.weight_decay = a->stretches[i].decays ? a->options.weight_decay : 0;
        update(a, s, &a->stretches[i], &options);
    }
}
