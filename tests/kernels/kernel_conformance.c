/* kernel_conformance BACKEND: every function of a backend against fp64 references. Exit 77 where
 * the backend was not built or has no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel_cases.h"

typedef struct job {
    kernels *k;
    conform_case *run;
    int anywhere; /* a device's bits, too, stand any address */
} job;

static uint64_t run_at(const job *j, size_t shift, int again) {
    static conform c;
    c = (conform){.k = j->k, .what = "", .random = 1, .shift = shift, .again = again, .digest = 1};
    j->run(&c);
    conform_finish(&c);
    return c.digest;
}

/* 16 floats are 64 bytes: what the interface promises. The CPU's bits stand any address, and those
 * of what a device does row by row or element by element: they take other ways there. */
static void conforms(void **state) {
    const job *j = *state;
    uint64_t digest = run_at(j, 0, 0);
    assert_int_equal(run_at(j, 16, 1), digest);
    if (j->anywhere) assert_int_equal(run_at(j, 1, 1), digest);
    if (!strcmp(j->k->name, "cpu"))
        for (size_t shift = 1; shift < 16; shift += 4)
            assert_int_equal(run_at(j, shift, 1), digest);
}

#define CASE_OF(j, name, anywhere)                                                                 \
    { #name, conforms, NULL, NULL, ((j) = (job){k, name, anywhere}, &(j)) }
#define CASE(j, name) CASE_OF(j, name, 0)
#define ANYWHERE(j, name) CASE_OF(j, name, 1)

static int run_all(kernels *k) {
    job j[28];
    const struct CMUnitTest tests[] = {
        ANYWHERE(j[0], case_vectors),
        ANYWHERE(j[1], case_rows),
        CASE(j[2], case_patches),
        CASE(j[3], case_matmul),
        ANYWHERE(j[4], case_embedding),
        ANYWHERE(j[5], case_norm_forward),
        ANYWHERE(j[6], case_norm_backward),
        ANYWHERE(j[7], case_layernorm_forward),
        ANYWHERE(j[8], case_layernorm_backward),
        ANYWHERE(j[9], case_heads),
        CASE(j[10], case_attention_forward),
        CASE(j[11], case_attention_backward),
        ANYWHERE(j[12], case_activation),
        ANYWHERE(j[13], case_gated),
        ANYWHERE(j[14], case_loss),
        CASE(j[15], case_loss_extremes),
        ANYWHERE(j[16], case_adamw),
        ANYWHERE(j[17], case_row_sumsq),
        ANYWHERE(j[18], case_bf16),
        CASE(j[19], case_matmul_bf16),
        ANYWHERE(j[20], case_activations_bf16),
        CASE(j[21], case_exact_add),
        CASE(j[22], case_host_memory),
        CASE(j[23], case_device),
        CASE(j[24], case_attention_alone),
        CASE(j[25], case_tf32),
        CASE(j[26], case_layer),
        ANYWHERE(j[27], case_sgd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "cpu";
    kernels *k = NULL;
    int status = kernels_open(name, &k);
    if (status == KERNELS_UNKNOWN || status == KERNELS_NO_DEVICE) {
        fprintf(stderr, "%s: %s%s%s\n", name,
                status == KERNELS_UNKNOWN ? "not built" : "no device here",
                kernels_why() ? ": " : "", kernels_why() ? kernels_why() : "");
        return 77;
    }
    if (status != KERNELS_OK) return 1;
    printf("%s: %s\n", name, k->describe(k));
    int failures = run_all(k);
    kernels_close(k);
    return failures ? 1 : 0;
}
