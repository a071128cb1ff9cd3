/* The tokenizer that export_byte_tokenizer_write writes is a byte-level BPE without merges; its 256
 * tokens are the bytes. As in GPT-2's tokenizer, each byte is represented by a visible character.
 * Bytes that are printable in Latin-1 represent themselves; the other bytes are represented, in
 * order, by the characters starting at U+0100. */
#include "export/contents.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dcp/safetensors.h>

#include "common/element.h"
#include "export/stream.h"
#include "programs/json_read.h"
#include "programs/model_files.h"
#include "programs/program.h"

enum { BYTES = 256, FIRST_OTHER = 0x100 };

static bool is_seen(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

/* Encodes a character below U+0800 as UTF-8. */
static void put_utf8(unsigned character, char out[3]) {
    const bool is_one = character < 0x80;
    out[0] = (char)(is_one ? character : 0xc0 | character >> 6);
    out[1] = (char)(is_one ? 0 : 0x80 | (character & 0x3f));
    out[2] = 0;
}

static json_t *vocabulary(void) {
    json_t *tokens = json_object();
    unsigned other = FIRST_OTHER;
    for (unsigned byte = 0; byte < BYTES; byte++) {
        char name[3];
        put_utf8(is_seen(byte) ? byte : other++, name);
        json_object_set_new(tokens, name, json_integer(byte));
    }
    return tokens;
}

static json_t *byte_level(void) {
    return json_pack("{sssbsbsb}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                     "use_regex", 0);
}

static json_t *tokenizer(void) {
    json_t *model =
        json_pack("{sssnsnsnsnsbsbsbsos[]}", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback",
                  0, "ignore_merges", 0, "vocab", vocabulary(), "merges");
    return json_pack("{sssnsns[]snsosnsoso}", "version", "1.0", "truncation", "padding",
                     "added_tokens", "normalizer", "pre_tokenizer", byte_level(), "post_processor",
                     "decoder", byte_level(), "model", model);
}

static bool has_tokenizer(const dcp_checkpoint *ckpt) {
    static const char section[] = "/files/";
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const char *path = dcp_checkpoint_tensor(ckpt, i)->path;
        if (strncmp(path, section, strlen(section)) == 0 &&
            model_files_is_tokenizer(path + strlen(section)))
            return true;
    }
    return false;
}

/* Returns true if dcp-train trained the model: dcp-train's checkpoints record the data that were
 * read. */
static bool is_trained(const dcp_checkpoint *ckpt) {
    const char *text = dcp_checkpoint_json(ckpt);
    json_t *meta = core_json_read(text, strlen(text), NULL);
    const bool is = json_is_object(json_object_get(meta, "data"));
    json_decref(meta);
    return is;
}

/* Writes tokenizer.json and tokenizer_config.json into `dir`, so that transformers' AutoTokenizer
 * converts text to its bytes. Does nothing if the checkpoint has a tokenizer, or if dcp-train did
 * not train the model, or if the model's vocabulary is not 256. Returns an exit status, after a
 * message. */
static int export_byte_tokenizer_write(const dcp_checkpoint *ckpt, const json_t *config,
                                       const char *dir) {
    char path[PATH_MAX + 32];
    if (json_integer_value(json_object_get(config, "vocab_size")) != BYTES || !is_trained(ckpt) ||
        has_tokenizer(ckpt))
        return 0;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    const int status = json_text_write_file(tokenizer(), path);
    if (status) return status;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    return json_text_write_file(json_pack("{sssb}", "tokenizer_class", "PreTrainedTokenizerFast",
                                          "clean_up_tokenization_spaces", 0),
                                path);
}

#define TABLE "talker.model.codec_embedding.weight"

/* The first row for voices in published folders; in a smaller table the last row is used. */
enum { FIRST_ROW = 3000 };

static int lower_name(const char *name, export_voice *out) {
    const size_t n = strlen(name);
    if (n == 0 || n >= sizeof out->name)
        return program_refuse("--voice: a name must have 1 to %zu characters",
                              sizeof out->name - 1);
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)name[i]) && !strchr("_-", name[i]))
            return program_refuse("--voice: '%s': a name may contain only letters, digits, _ and -",
                                  name);
        out->name[i] = (char)tolower((unsigned char)name[i]);
    }
    return 0;
}

static int find_table(const dcp_checkpoint *ckpt, const export_contents *contents,
                      export_voice *out) {
    for (size_t i = 0; i < contents->n; i++) {
        const dcp_tensor *tensor = &contents->items[i].tensor;
        if (strcmp(tensor->path, TABLE) != 0) continue;
        out->item = i;
        if (tensor->ndim == 2 && element_is_float(tensor->dtype)) return 0;
    }
    return program_refuse("%s: has no " TABLE ", in which --voice stores the voice: omit --voice",
                          dcp_checkpoint_path(ckpt));
}

static bool is_taken(const json_t *voices, uint64_t row) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)voices, name,
                        value) if (json_integer_value(value) == (json_int_t)row) return true;
    return false;
}

/* Chooses a row of the table: the row of an existing voice of the same name, otherwise a row that
 * no voice uses. */
static int choose_row(const dcp_checkpoint *ckpt, const export_contents *contents,
                      export_voice *out) {
    const uint64_t rows = contents->items[out->item].tensor.shape[0];
    json_t *config = export_contents_config(ckpt);
    const json_t *voices = json_object_get(json_object_get(config, "talker_config"), "spk_id");
    const json_t *own = json_object_get(voices, out->name);
    out->row = rows > FIRST_ROW ? FIRST_ROW : rows - 1;
    if (json_is_integer(own) && json_integer_value(own) >= 0)
        out->row = (uint64_t)json_integer_value(own);
    else
        while (out->row < rows && is_taken(voices, out->row)) out->row++;
    json_decref(config);
    if (out->row < rows) return 0;
    return program_refuse("%s: no row of " TABLE
                          " is free for a new voice: give --voice the name of an existing voice, "
                          "which is then replaced",
                          dcp_checkpoint_path(ckpt));
}

/* Reports that the file of --voice-from cannot be used. The exit status differs from the one for a
 * damaged checkpoint. */
static int refuse_file(const dcp_error *why) {
    return program_refuse("--voice-from: %s; give it the records of that voice "
                          "(examples/talker/to_records.py)",
                          why->message);
}

static int read_vector(dcp_st_reader *reader, const char *file, uint64_t hidden,
                       export_voice *out) {
    dcp_error err;
    const dcp_tensor *t = dcp_st_find(reader, "speakers");
    if (!t || t->dtype != DCP_F32 || t->ndim != 2 || t->shape[0] != 1 || t->shape[1] != hidden)
        return program_refuse("--voice-from: %s: speakers is not an F32 tensor of shape [1,%" PRIu64
                              "]; make records of one reference recording, with this model's size "
                              "(examples/talker/to_records.py)",
                              file, hidden);
    out->vector = malloc(hidden * sizeof *out->vector);
    if (!out->vector) return program_no_memory();
    if (dcp_st_read(reader, "speakers", 0, hidden * sizeof *out->vector, out->vector, &err))
        return refuse_file(&err);
    for (uint64_t i = 0; i < hidden; i++)
        if (!isfinite(out->vector[i]))
            return program_refuse("--voice-from: %s: number %" PRIu64
                                  " of the vector is not finite; make the records again",
                                  file, i);
    return 0;
}

int export_voice_open(const dcp_checkpoint *ckpt, const export_contents *contents, const char *name,
                      const char *file, export_voice *out) {
    dcp_error err;
    dcp_st_reader *reader;
    *out = (export_voice){0};
    int status = lower_name(name, out);
    if (!status) status = find_table(ckpt, contents, out);
    if (!status) status = choose_row(ckpt, contents, out);
    if (status) return status;
    if (dcp_st_open(file, &reader, &err)) return refuse_file(&err);
    status = read_vector(reader, file, contents->items[out->item].tensor.shape[1], out);
    dcp_st_close(reader);
    if (status) export_voice_close(out);
    return status;
}

void export_voice_close(export_voice *voice) {
    free(voice->vector);
    voice->vector = NULL;
}

/* Returns the object at `key`, and creates it if it does not exist. */
static json_t *object_of(json_t *parent, const char *key) {
    if (!json_is_object(json_object_get(parent, key)))
        json_object_set_new(parent, key, json_object());
    return json_object_get(parent, key);
}

/* Adds the voice to the exported config.json. */
static void export_voice_name(const export_voice *voice, json_t *config) {
    json_t *talker = object_of(config, "talker_config");
    json_object_set_new(config, "tts_model_type", json_string("custom_voice"));
    json_object_set_new(object_of(talker, "spk_id"), voice->name,
                        json_integer((json_int_t)voice->row));
    json_object_set_new(object_of(talker, "spk_is_dialect"), voice->name, json_false());
}

static int write_at(const char *path, const void *data, uint64_t bytes, uint64_t offset) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return program_fail_errno("cannot open", path);
    const ssize_t put = pwrite(fd, data, bytes, (off_t)offset);
    int status = 0;
    if (put != (ssize_t)bytes || fsync(fd)) status = program_fail_errno("cannot write", path);
    close(fd);
    return status;
}

int export_voice_write(const export_voice *voice, const export_contents *contents,
                       const char *dir) {
    char path[PATH_MAX + 80];
    const export_item *item = &contents->items[voice->item];
    const dcp_tensor *table = &item->tensor;
    const uint64_t n = table->shape[1], bytes = n * dcp_dtype_bytes(table->dtype);
    void *row = malloc(bytes);
    if (!row) return program_no_memory();
    dcp_convert(DCP_F32, voice->vector, table->dtype, row, n);
    snprintf(path, sizeof path, "%s/%s", dir, contents->files[item->file].name);
    const int status = write_at(path, row, bytes, item->offset + voice->row * bytes);
    free(row);
    return status;
}

/* config.json is the model's configuration as the trainer stored it, with keys added for
 * transformers. The files in the checkpoint's /files are written last, and replace no other
 * file. */

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

/* Sets each of the two keys that exists, or torch_dtype if neither does. Older versions of
 * transformers read only torch_dtype; newer ones read dtype, too. */
static void set_dtype(json_t *config, dcp_dtype dtype) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    bool found = false;
    for (size_t i = 0; i < 2; i++) {
        if (!json_object_get(config, keys[i])) continue;
        json_object_set_new(config, keys[i], json_string(torch_dtype(dtype)));
        found = true;
    }
    if (!found) json_object_set_new(config, keys[1], json_string(torch_dtype(dtype)));
}

/* Returns the type of the model's largest floating-point tensor. Ignores 8-bit floats, because the
 * configuration names the type in which to compute. */
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
        program_note("%s: holds no model configuration, so config.json is not written",
                     dcp_checkpoint_path(ckpt));
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

/* Writes the index of a part's files, such as model.safetensors.index.json, in the form that
 * transformers writes. */
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
        bool failed = mkdir(path, 0777) && errno != EEXIST;
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
