/* The tokenizer is byte-level BPE without merges, whose 256 tokens are the bytes. Its file names
 * each byte by a character that is seen, as GPT-2's does: what prints in Latin-1 by itself, and the
 * others, in their order, by the characters from U+0100 on. */
#include "export/byte_tokenizer.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/json_text.h"
#include "programs/json_read.h"
#include "programs/model_files.h"

enum { BYTES = 256, FIRST_OTHER = 0x100 };

static int is_seen(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

/* A character below U+0800 as UTF-8. */
static void put_utf8(unsigned character, char out[3]) {
    const int is_one = character < 0x80;
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

static int has_tokenizer(const dcp_checkpoint *ckpt) {
    static const char section[] = "/files/";
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const char *path = dcp_checkpoint_tensor(ckpt, i)->path;
        if (strncmp(path, section, strlen(section)) == 0 &&
            model_files_is_tokenizer(path + strlen(section)))
            return 1;
    }
    return 0;
}

/* dcp-train says in the checkpoint what data it read. */
static int is_trained(const dcp_checkpoint *ckpt) {
    const char *text = dcp_checkpoint_json(ckpt);
    json_t *meta = core_json_read(text, strlen(text), NULL);
    const int is = json_is_object(json_object_get(meta, "data"));
    json_decref(meta);
    return is;
}

int export_byte_tokenizer_write(const dcp_checkpoint *ckpt, const json_t *config, const char *dir) {
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
