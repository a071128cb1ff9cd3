/* train_compare gradients|parameters CKPT GOLDEN.safetensors SCALE [LIMIT]: compares a checkpoint's
 * first moments times SCALE with golden gradients, or its parameters with golden ones. How close is
 * right: see the tests that call it. Prints the largest deviation; exit 1 where it is too large. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp/dcp.h"
#include "golden_keys.h"

typedef struct comparison {
    const char *stored, *golden; /* prefixes of names in the checkpoint and in the golden file */
    double scale, tolerance;     /* relative to the tensor's largest value */
    double noise;                /* that may stand in the keys' biases */
    double worst;
    size_t tensors;
} comparison;

static void must(int status, const dcp_error *err) {
    if (status == DCP_OK) return;
    fprintf(stderr, "train_compare: %s\n", err->message);
    exit(3);
}

static float *take(uint64_t bytes) {
    float *memory = malloc(bytes);
    if (!memory) exit(3);
    return memory;
}

static void compare(comparison *c, dcp_checkpoint *ckpt, dcp_st_reader *golden,
                    const dcp_tensor *tensor) {
    dcp_error err;
    char path[DCP_MAX_PATH];
    snprintf(path, sizeof path, "%s%s", c->stored, tensor->path + strlen(c->golden));
    const uint64_t bytes = dcp_tensor_bytes(tensor);
    float *want = take(bytes), *found = take(bytes);
    const dcp_box all = dcp_box_whole(tensor);
    must(dcp_st_read(golden, tensor->path, 0, bytes, want, &err), &err);
    must(dcp_checkpoint_read(ckpt, path, &all, found, &err), &err);
    double noise, d = golden_deviation(path, found, want, bytes / sizeof *want, c->scale, &noise);
    if (!(noise <= c->noise)) d = INFINITY;
    if (!(d <= c->tolerance)) printf("%s: deviates by %g of its largest value\n", path, d);
    c->worst = fmax(c->worst, d);
    c->tensors++;
    free(want);
    free(found);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    comparison c = {
        .stored = "/model/", .golden = "step5.", .scale = 1, .tolerance = 4e-3, .noise = INFINITY};
    if (strcmp(argv[1], "gradients") == 0)
        c = (comparison){.stored = "/optimizer/exp_avg/",
                         .golden = "grad.",
                         .scale = atof(argv[4]),
                         .tolerance = 2e-5,
                         .noise = GOLDEN_KEY_NOISE};
    dcp_error err;
    dcp_comm *self;
    dcp_checkpoint *ckpt;
    dcp_st_reader *golden;
    must(dcp_comm_self(&self, &err), &err);
    if (argc > 5) c.tolerance = atof(argv[5]);
    must(dcp_checkpoint_open(self, argv[2], &ckpt, &err), &err);
    must(dcp_st_open(argv[3], &golden, &err), &err);
    for (size_t i = 0; i < dcp_st_tensors(golden); i++) {
        const dcp_tensor *tensor = dcp_st_tensor(golden, i);
        if (strncmp(tensor->path, c.golden, strlen(c.golden)) == 0)
            compare(&c, ckpt, golden, tensor);
    }
    printf("%s: %zu tensors, largest deviation %g\n", argv[1], c.tensors, c.worst);
    dcp_st_close(golden);
    dcp_checkpoint_close(ckpt);
    dcp_comm_destroy(self);
    return c.tensors > 0 && c.worst <= c.tolerance ? 0 : 1;
}
