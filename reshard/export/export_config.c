/* config.json: the model's configuration as the trainer kept it, completed for transformers. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/element.h"
#include "common/json_text.h"
#include "export/export.h"
#include "programs/program.h"

static const char *const architectures[][2] = {
    {"llama", "LlamaForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"gpt2", "GPT2LMHeadModel"},
    {"vit", "ViTForImageClassification"},
};

static void add_architecture(json_t *config) {
    const char *type = json_string_value(json_object_get(config, "model_type"));
    if (!type || json_object_get(config, "architectures")) return;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(type, architectures[i][0]) == 0)
            json_object_set_new(config, "architectures", json_pack("[s]", architectures[i][1]));
}

static const char *torch_dtype(dcp_dtype dtype) {
    switch (dtype) {
    case DCP_F64:
        return "float64";
    case DCP_F16:
        return "float16";
    case DCP_BF16:
        return "bfloat16";
    default:
        return "float32";
    }
}

/* Older versions of transformers read torch_dtype, newer ones dtype (and still torch_dtype). */
static void set_dtype(json_t *config, dcp_dtype dtype) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    int found = 0;
    for (size_t i = 0; i < 2; i++) {
        if (!json_object_get(config, keys[i])) continue;
        json_object_set_new(config, keys[i], json_string(torch_dtype(dtype)));
        found = 1;
    }
    if (!found) json_object_set_new(config, keys[1], json_string(torch_dtype(dtype)));
}

/* The type of most of the model's bytes: that of its largest floating tensor. 8 bits are no type to
 * compute in, which is what the configuration names. */
static dcp_dtype main_dtype(const export_plan *plan) {
    const export_part *model = &plan->parts[0];
    dcp_dtype dtype = DCP_F32;
    uint64_t most = 0;
    for (size_t i = model->first; i < model->first + model->n; i++) {
        const dcp_tensor *tensor = &plan->items[i].tensor;
        if (!element_is_float(tensor->dtype) || dcp_dtype_bytes(tensor->dtype) == 1) continue;
        if (dcp_tensor_bytes(tensor) <= most) continue;
        most = dcp_tensor_bytes(tensor);
        dtype = tensor->dtype;
    }
    return dtype;
}

json_t *export_config_stored(const dcp_checkpoint *ckpt) {
    json_t *meta = json_loads(dcp_checkpoint_json(ckpt), 0, NULL);
    json_t *config = json_incref(json_object_get(meta, "model"));
    json_decref(meta);
    if (json_is_object(config)) return config;
    json_decref(config);
    return NULL;
}

json_t *export_config_make(const dcp_checkpoint *ckpt, const export_plan *plan) {
    json_t *config = export_config_stored(ckpt);
    if (!config) return NULL;
    add_architecture(config);
    set_dtype(config, main_dtype(plan));
    return config;
}

int export_config(const dcp_checkpoint *ckpt, const export_plan *plan, const char *dir) {
    char path[PATH_MAX + 16];
    json_t *config = export_config_make(ckpt, plan);
    if (!config) {
        program_note("%s: holds no model configuration: no config.json", dcp_checkpoint_path(ckpt));
        return 0;
    }
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *out = fopen(path, "wx");
    int failed = !out || json_text_write(config, JSON_SORT_KEYS, out);
    if (out) failed |= fclose(out) != 0;
    json_decref(config);
    return failed ? program_fail_errno("cannot write", path) : 0;
}
