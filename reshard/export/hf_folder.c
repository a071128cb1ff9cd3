/* config.json is the model's configuration as the trainer kept it, completed for transformers.
 * Files of the checkpoint come last and replace none of ours. */
#include "export/hf_folder.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/element.h"
#include "common/json_text.h"
#include "export/byte_tokenizer.h"
#include "export/stream.h"
#include "export/voice.h"
#include "programs/program.h"

static const char *const architectures[][2] = {
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"gpt2", "GPT2LMHeadModel"},
    {"vit", "ViTForImageClassification"},
    {"qwen3_tts", "Qwen3TTSForConditionalGeneration"},
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

/* The type of the model's largest floating tensor. The configuration names a type to compute in,
 * which 8-bit floats are not. */
static dcp_dtype main_dtype(const export_contents *contents) {
    const export_part *model = &contents->parts[0];
    dcp_dtype dtype = DCP_F32;
    uint64_t most = 0;
    for (size_t i = model->first; i < model->first + model->n; i++) {
        const dcp_tensor *tensor = &contents->items[i].tensor;
        if (!element_is_float(tensor->dtype) || dcp_dtype_bytes(tensor->dtype) == 1) continue;
        if (dcp_tensor_bytes(tensor) <= most) continue;
        most = dcp_tensor_bytes(tensor);
        dtype = tensor->dtype;
    }
    return dtype;
}

json_t *export_hf_folder_config(const dcp_checkpoint *ckpt, const export_contents *contents) {
    json_t *config = export_contents_config(ckpt);
    if (!config) return NULL;
    add_architecture(config);
    set_dtype(config, main_dtype(contents));
    if (contents->voice) export_voice_name(contents->voice, config);
    return config;
}

int export_config(const dcp_checkpoint *ckpt, const export_contents *contents, const char *dir) {
    char path[PATH_MAX + 16];
    json_t *config = export_hf_folder_config(ckpt, contents);
    if (!config) {
        program_note("%s: holds no model configuration: no config.json", dcp_checkpoint_path(ckpt));
        return 0;
    }
    int status = export_byte_tokenizer_write(ckpt, config, dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (!status)
        status = json_text_write_file(config, path);
    else
        json_decref(config);
    return status;
}

static int create_files(const export_contents *contents, const char *dir) {
    char path[PATH_MAX + 80];
    int status = 0;
    for (size_t i = 0; status == 0 && i < contents->n_files; i++) {
        const export_file *file = &contents->files[i];
        snprintf(path, sizeof path, "%s/%s", dir, file->name);
        status = export_stream_create_file(path, file->head, file->head_bytes, file->bytes);
    }
    return status;
}

/* model.safetensors.index.json, as transformers writes it. */
static int write_index(const export_contents *contents, const export_part *part, const char *dir) {
    char path[PATH_MAX + 80];
    json_t *map = json_object();
    for (size_t i = part->first; i < part->first + part->n; i++)
        json_object_set_new(map, contents->items[i].tensor.path,
                            json_string(contents->files[contents->items[i].file].name));
    json_t *root =
        json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", (json_int_t)part->elems,
                  "total_size", (json_int_t)part->bytes, "weight_map", map);
    snprintf(path, sizeof path, "%s/%s.safetensors.index.json", dir, part->stem);
    return json_text_write_file(root, path);
}

static int make_parents(char *path, size_t from) {
    for (char *slash = path + from; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        int failed = mkdir(path, 0777) && errno != EEXIST;
        if (failed) return program_fail_errno("cannot make", path);
        *slash = '/';
    }
    return 0;
}

static int write_bytes(void *ctx, uint64_t offset, const void *data, uint64_t bytes) {
    (void)offset;
    return fwrite(data, 1, bytes, ctx) == bytes
               ? 0
               : program_fail_errno("cannot write", "a file of the checkpoint");
}

static int write_companion(dcp_checkpoint *ckpt, const dcp_tensor *tensor, const char *name,
                           const char *dir) {
    char path[PATH_MAX + DCP_MAX_PATH + 2];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int status = make_parents(path, strlen(dir) + 1);
    if (status) return status;
    FILE *f = fopen(path, "wbx");
    if (!f && errno == EEXIST)
        return program_fail(PROGRAM_DIFFERS,
                            "%s: %s has the name of a file that an export makes itself",
                            dcp_checkpoint_path(ckpt), tensor->path);
    if (!f) return program_fail_errno("cannot create", path);
    status = export_stream_tensor(ckpt, tensor->path, tensor->dtype, 0, UINT64_MAX, NULL,
                                  write_bytes, f);
    if (fclose(f) && status == 0) status = program_fail_errno("cannot write", path);
    return status;
}

static int write_companions(dcp_checkpoint *ckpt, const char *dir) {
    static const char section[] = "/files/";
    int status = 0;
    for (size_t i = 0; status == 0 && i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *tensor = dcp_checkpoint_tensor(ckpt, i);
        if (strncmp(tensor->path, section, strlen(section))) continue;
        status = write_companion(ckpt, tensor, tensor->path + strlen(section), dir);
    }
    return status;
}

int export_hf_folder_create(dcp_checkpoint *ckpt, const export_contents *contents,
                            const char *dir) {
    int status = create_files(contents, dir);
    for (size_t i = 0; status == 0 && i < contents->n_parts; i++)
        if (contents->parts[i].files > 1) status = write_index(contents, &contents->parts[i], dir);
    if (status == 0) status = export_config(ckpt, contents, dir);
    return status ? status : write_companions(ckpt, dir);
}
