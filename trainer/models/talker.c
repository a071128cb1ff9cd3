/* Qwen3-TTS: a talker, which is a decoder, with the decoder that predicts the other codes of its
 * frames. Each has an object of its own in config.json, the second one inside the first. */
#include "models/talker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/decoder.h"
#include "programs/fail.h"

#define TALKER "talker_config."
#define PREDICTOR TALKER "code_predictor_config."

/* Frames of more codes than any codec has would only be a mistake. */
enum { MOST_GROUPS = 1024 };

static const family_names talker = {.base = "",
                                    .embed = "talker.model.codec_embedding",
                                    .final_norm = "talker.model.norm",
                                    .head = "talker.codec_head",
                                    .block = "talker.model.layers.",
                                    DECODER_BLOCK_NAMES,
                                    DECODER_HEAD_NORMS};

static const family_names predictor = {.base = "",
                                       .final_norm = "talker.code_predictor.model.norm",
                                       .block = "talker.code_predictor.model.layers.",
                                       DECODER_BLOCK_NAMES,
                                       DECODER_HEAD_NORMS};

static int read_level(const model_keys *keys, const family_names *names, model_config *c,
                      dcp_error *err) {
    c->names = names;
    c->head_dim = 128;
    c->max_positions = 32768;
    int status = model_decoder_read(keys, MODEL_WINDOWS_ASKED, c, err);
    c->input = INPUT_SPEECH;
    if (!status) status = model_keys_only_flag(keys, "mlp_bias", 0, err);
    if (!status) status = model_keys_only_flag(keys, "attention_bias", 0, err);
    if (!status) status = model_keys_only_flag(keys, "tie_word_embeddings", 0, err);
    c->tied = c->qkv_bias = c->o_bias = 0;
    model_keys_no_extras(keys);
    return status ? status : model_decoder_check_heads(keys, c, err);
}

/* Tables have more than one row, since ids are from 1 on. */
static int check_tables(const model_config *c, dcp_error *err) {
    const int is_text = c->classes > 1;
    if (is_text && c->speech->texts > 1) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "model config: " TALKER "%s is 1, which has no room for the ids that stand "
                     "beside text and codes; set it as the model has it",
                     is_text ? "text_vocab_size" : "vocab_size");
}

/* Ids that stand in the channels beside those of text and speech. */
static int read_text_ids(const model_keys *keys, speech_config *s, dcp_error *err) {
    const uint64_t most = s->texts - 1;
    const keys_entry entries[] = {
        {.key = "tts_pad_token_id", .out = &s->text_pad, .most = most},
        {.key = "tts_bos_token_id", .out = &s->text_begin, .most = most},
        {.key = "tts_eos_token_id", .out = &s->text_end, .most = most},
    };
    return model_keys_sizes(keys, entries, sizeof entries / sizeof *entries, err);
}

static int read_code_ids(const model_keys *keys, uint64_t classes, speech_config *s,
                         dcp_error *err) {
    const uint64_t most = classes - 1;
    const keys_entry entries[] = {
        {.key = "codec_pad_id", .out = &s->pad, .most = most},
        {.key = "codec_bos_id", .out = &s->begin, .most = most},
        {.key = "codec_eos_token_id", .out = &s->end, .most = most},
        {.key = "codec_nothink_id", .out = &s->no_think, .most = most},
        {.key = "codec_think_bos_id", .out = &s->think_begin, .most = most},
        {.key = "codec_think_eos_id", .out = &s->think_end, .most = most},
    };
    return model_keys_sizes(keys, entries, sizeof entries / sizeof *entries, err);
}

/* Codes of a frame, as both objects have it. */
static int read_groups(const model_keys *outer, const model_keys *inner, speech_config *s,
                       dcp_error *err) {
    uint64_t own = 0;
    const keys_entry groups = {.key = "num_code_groups", .out = &s->groups, .most = MOST_GROUPS};
    const keys_entry same = {.key = "num_code_groups", .out = &own, .most = MOST_GROUPS};
    int status = model_keys_size(outer, &groups, err);
    if (!status) status = model_keys_size(inner, &same, err);
    if (status) return status;
    if (own == s->groups && own > 1 && own <= s->predictor.max_positions) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "model config: " TALKER "num_code_groups is %llu, " PREDICTOR
                     "num_code_groups %llu: they are one number, 2 at least, and at most the "
                     "latter's max_position_embeddings %llu",
                     (unsigned long long)s->groups, (unsigned long long)own,
                     (unsigned long long)s->predictor.max_positions);
}

static int check_object(const model_keys *keys, dcp_error *err) {
    if (json_is_object(keys->object)) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "model config: %.*s is %s", (int)strlen(keys->path) - 1,
                     keys->path, keys->object ? "not an object" : "missing");
}

int model_talker_read(const model_keys *keys, model_config *c, dcp_error *err) {
    const model_keys outer = {model_keys_value(keys, "talker_config"), TALKER, keys->refused};
    int status = check_object(&outer, err);
    if (status) return status;
    const model_keys inner = {model_keys_value(&outer, "code_predictor_config"), PREDICTOR,
                              keys->refused};
    status = check_object(&inner, err);
    if (status) return status;
    speech_config *s = c->speech = calloc(1, sizeof *s);
    if (!s) return core_fail_memory(err, sizeof *s);
    const keys_entry text[] = {{.key = "text_vocab_size", .out = &s->texts},
                               {.key = "text_hidden_size", .out = &s->text_hidden}};
    /* Other codecs have another layout of their frames. */
    model_keys_only_text(keys, "tokenizer_type", "qwen3_tts_tokenizer_12hz", NULL);
    status = read_level(&outer, &talker, c, err);
    if (!status) status = read_level(&inner, &predictor, &s->predictor, err);
    if (!status) status = read_groups(&outer, &inner, s, err);
    if (!status) status = model_keys_sizes(&outer, text, 2, err);
    if (!status) status = check_tables(c, err);
    if (!status) status = read_text_ids(keys, s, err);
    return status ? status : read_code_ids(&outer, c->classes, s, err);
}
