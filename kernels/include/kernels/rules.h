/* The rules of optimizers: the parameters of an update, and the factors that all backends use in a
 * rule. PyTorch computes in fp64 the factors that it passes to its fp32 kernels, and rounds them to
 * fp32 afterwards; the functions below do the same. */
#ifndef KERNELS_RULES_H
#define KERNELS_RULES_H

#include <math.h>
#include <stdint.h>

/* How an optimizer changes parameters. Each rule has slots, arrays as long as the parameters. They
 * are zero before the first update, and each update changes them. */
typedef enum kernels_rule {
    /* AdamW (Loshchilov and Hutter 2019) as torch.optim.AdamW computes it in fp32: decoupled decay,
     * bias correction. Slots: exp_avg, exp_avg_sq, both fp32. */
    KERNELS_ADAMW,
    /* Gradient descent with momentum as torch.optim.SGD computes it in fp32. With g = grad +
     * weight_decay * param: buffer = momentum * buffer + (1 - dampening) * g; in update 1, and
     * without momentum, buffer = g. Then param -= lr * buffer, or with nesterov param -= lr * (g +
     * momentum * buffer). Slot: momentum_buffer, fp32. */
    KERNELS_SGD,
} kernels_rule;

enum { KERNELS_MAX_SLOTS = 2 };

/* The parameters of an update, except for its arrays. */
typedef struct kernels_update {
    kernels_rule rule;
    double lr;
    double weight_decay;
    double grad_scale;          /* gradients are multiplied by this factor (clipping) */
    uint64_t step;              /* the number of this update, starting at 1 */
    double beta1, beta2, eps;   /* for KERNELS_ADAMW */
    double momentum, dampening; /* for KERNELS_SGD */
    int nesterov;
} kernels_update;

typedef struct kernels_adamw {
    float grad_scale, decay, towards_grad, keep_square, add_square, root, eps, step_size;
} kernels_adamw;

static inline kernels_adamw kernels_adamw_of(const kernels_update *u) {
    kernels_adamw f;
    f.grad_scale = (float)u->grad_scale;
    f.decay = (float)(1.0 - u->lr * u->weight_decay);
    f.towards_grad = (float)(1.0 - u->beta1);
    f.keep_square = (float)u->beta2;
    f.add_square = (float)(1.0 - u->beta2);
    f.root = (float)sqrt(1.0 - pow(u->beta2, (double)u->step));
    f.eps = (float)u->eps;
    f.step_size = (float)(u->lr / (1.0 - pow(u->beta1, (double)u->step)));
    return f;
}

typedef struct kernels_sgd {
    float grad_scale, decay, keep, add, ahead, step_size;
    int nesterov;
} kernels_sgd;

static inline kernels_sgd kernels_sgd_of(const kernels_update *u) {
    const int begins = u->step == 1 || u->momentum == 0;
    kernels_sgd f;
    f.grad_scale = (float)u->grad_scale;
    f.decay = (float)u->weight_decay;
    f.keep = begins ? 0.0f : (float)u->momentum;
    f.add = begins ? 1.0f : (float)(1.0 - u->dampening);
    f.ahead = (float)u->momentum;
    f.step_size = (float)u->lr;
    f.nesterov = u->nesterov;
    return f;
}

#endif
