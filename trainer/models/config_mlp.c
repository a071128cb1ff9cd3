/* A plain MLP for classification: {"model_type": "mlp", "sizes": [784, 512, 10]}, linear layers
 * with "activation" (relu) between them. The format is our own, so an unknown key is a mistake. */
#include <stdlib.h>
#include <string.h>

#include "models/config.h"
#include "models/keys.h"
#include "programs/fail.h"

static const family_names mlp = {.base = "", .block = "layers.", .after = "", .head = "layers."};

static int check_keys(const json_t *config, dcp_error *err) {
    static const char *const known[] = {"model_type", "sizes",       "activation",
                                        "dtype",      "torch_dtype", "transformers_version"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value) {
        int found = key[0] == '_' || strcmp(key, "architectures") == 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= strcmp(key, known[i]) == 0;
        if (!found)
            return core_fail(err, DCP_ERR_UNSUPPORTED,
                             "model config: %.100s: an mlp has no such key (sizes, activation)",
                             key);
    }
    return DCP_OK;
}

static int read_sizes(const json_t *sizes, model_config *c, dcp_error *err) {
    const size_t n = json_array_size(sizes);
    if (n < 2 || n > KEYS_MAX_LAYERS)
        return core_fail(err, DCP_ERR_ARG, "model config: sizes is not a list of 2 to %llu sizes",
                         (unsigned long long)KEYS_MAX_LAYERS);
    c->layers = n - 2;
    c->sizes = malloc(n * sizeof *c->sizes);
    if (!c->sizes) return core_fail_memory(err, n * sizeof *c->sizes);
    for (size_t i = 0; i < n; i++) {
        const json_t *size = json_array_get(sizes, i);
        const json_int_t number = json_integer_value(size);
        if (!json_is_integer(size) || number < 1 || (uint64_t)number > KEYS_MAX_SIZE)
            return core_fail(err, DCP_ERR_ARG,
                             "model config: sizes[%zu] is not an integer in 1..%llu", i,
                             (unsigned long long)KEYS_MAX_SIZE);
        c->sizes[i] = (uint64_t)number;
        if (c->sizes[i] > c->hidden) c->hidden = c->sizes[i];
    }
    c->classes = c->sizes[n - 1];
    return DCP_OK;
}

int model_config_mlp(const json_t *config, model_config *c, dcp_error *err) {
    c->names = &mlp;
    c->input = INPUT_VECTOR;
    c->mlp_bias = c->head_bias = 1;
    int status = check_keys(config, err);
    if (!status) status = read_sizes(keys_value(config, "sizes"), c, err);
    return status ? status : keys_activation(config, "activation", "relu", &c->activation, err);
}
