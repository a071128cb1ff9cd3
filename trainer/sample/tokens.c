/* Parameters are compared with the checkpoint's tensors before memory is allocated for them, so a
 * wrong configuration cannot request more than the files contain. */
#include "sample/tokens.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model_run.h"
#include "models/params.h"
#include "models/parts.h"
#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/model_files.h"
#include "random/random.h"
#include "state/provenance.h"

static int read_meta(sample_loaded *s, dcp_error *err) {
    const char *path = dcp_checkpoint_path(s->ckpt), *text = dcp_checkpoint_json(s->ckpt);
    const int status = core_json_parse_object(text, strlen(text), &s->meta, err);
    if (status == DCP_ERR_NO_MEMORY) return status;
    if (json_is_object(json_object_get(s->meta, "model"))) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "%s: has no configuration of a model; --sample requires a checkpoint of "
                     "dcp-train or dcp-import",
                     path);
}

/* Fails if the model does not continue text: because it speaks, or takes images or vectors. */
static int check_takes_text(const sample_loaded *s, const char *path, const char *type,
                            dcp_error *err) {
    if (model_speaks(s->m))
        return core_fail(
            err, DCP_ERR_ARG,
            "%s: a model of model_type %s speaks a text but does not continue it; export it with "
            "dcp-export --voice, and use the package qwen-tts to speak the text",
            path, type);
    if (model_max_sequence(s->m)) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "%s: a model of model_type %s takes no text; --sample is for language models",
                     path, type);
}

static int make_model(sample_loaded *s, dcp_error *err) {
    const char *path = dcp_checkpoint_path(s->ckpt);
    const json_t *config = json_object_get(s->meta, "model");
    dcp_error why;
    int status = model_create(config, &s->m, &why);
    if (status) return core_fail(err, status, "%s: %s", path, why.message);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    status = check_takes_text(s, path, type, err);
    if (status) return status;
    if (json_is_true(json_object_get(s->meta, "bf16"))) model_set_type(s->m, KERNELS_BF16);
    model_set_checkpointing(s->m, true); /* no backward pass: the memory of one block suffices */
    return DCP_OK;
}

static size_t count_params(const model *m) {
    size_t n = 0;
    for (size_t unit = 0; unit < model_units(m); unit++) n += model_unit_params(m, unit);
    return n;
}

static void collect_params(const model *m, const model_param **list) {
    for (size_t unit = 0, n = 0; unit < model_units(m); unit++)
        for (size_t i = 0; i < model_unit_params(m, unit); i++)
            list[n++] = model_unit_param(m, unit, i);
}

/* How the model's tensors differ from the checkpoint's: the number of differences, and the first
 * one. */
typedef struct difference {
    int there;
    char text[400];
} difference;

static void record_first(void *ctx, weights_difference found) {
    difference *d = ctx;
    char shape[160] = "";
    if (d->there++) return;
    if (found.param)
        model_weights_shape_text(found.param->ndim, found.param->shape, shape, sizeof shape);
    if (!found.param)
        snprintf(d->text, sizeof d->text, "%s is not a tensor of the model", found.tensor->path);
    else
        snprintf(d->text, sizeof d->text, "%s %s is %s", found.param->name, shape,
                 found.tensor ? "stored in another shape" : "missing");
}

static int compare(sample_loaded *s, const found_tensors *found, const model_param *const *params,
                   dcp_error *err) {
    difference d = {0};
    const int status =
        model_weights_compare(params, count_params(s->m), found, record_first, &d, err);
    if (status || !d.there) return status;
    return core_fail(err, DCP_ERR_MISMATCH,
                     "%s: its tensors are not those of the model that it names: %s; save or import "
                     "the checkpoint again",
                     found->where, d.text);
}

/* Lays out the parameters in `memory`; without memory, only computes the size. */
static void lay_out(sample_loaded *s, const model_param *const *params, arena *a) {
    for (size_t i = 0; i < count_params(s->m); i++)
        s->params[i] = model_arena_floats(a, 1, model_param_elems(params[i]));
}

static int take_memory(sample_loaded *s, const model_param *const *params, dcp_error *err) {
    arena size = {0};
    lay_out(s, params, &size);
    if (!size.overflow) s->memory = aligned_alloc(64, size.used);
    if (!s->memory) return core_fail_memory(err, size.used);
    arena places = {.base = s->memory};
    lay_out(s, params, &places);
    for (size_t unit = 1; unit < model_units(s->m); unit++)
        s->first[unit] = s->first[unit - 1] + model_unit_params(s->m, unit - 1);
    return DCP_OK;
}

/* Loads the parameters, and widens them if they are stored in fewer bytes. */
static int load_params(sample_loaded *s, const found_tensors *found,
                       const model_param *const *params, dcp_error *err) {
    const dcp_load_options options = {.size = sizeof options, .cast = 1};
    dcp_state *state;
    int status = dcp_state_create(&state, err);
    if (status) return status;
    for (size_t i = 0; i < count_params(s->m) && !status; i++) {
        dcp_tensor tensor = *model_weights_find_param(found, params[i]);
        tensor.dtype = DCP_F32;
        status = dcp_state_add(state, &tensor, NULL, s->params[i], err);
    }
    if (!status) status = dcp_load_with(s->ckpt, state, &options, NULL, err);
    dcp_state_destroy(state);
    return status;
}

static int load_found(sample_loaded *s, const found_tensors *found, const model_param **params,
                      dcp_error *err) {
    collect_params(s->m, params);
    int status = compare(s, found, params, err);
    if (!status) status = take_memory(s, params, err);
    return status ? status : load_params(s, found, params, err);
}

static int load_model(sample_loaded *s, dcp_error *err) {
    const size_t tensors = dcp_checkpoint_tensors(s->ckpt), n = count_params(s->m);
    const dcp_tensor **list = calloc(tensors + 1, sizeof *list);
    const model_param **params = calloc(n + 1, sizeof *params);
    s->params = calloc(n + 1, sizeof *s->params);
    s->first = calloc(model_units(s->m), sizeof *s->first);
    int status = DCP_OK;
    if (!list || !params || !s->params || !s->first)
        status = core_fail_memory(err, (tensors + 2 * n) * sizeof *list);
    for (size_t i = 0; i < tensors && !status; i++) list[i] = dcp_checkpoint_tensor(s->ckpt, i);
    const found_tensors found = {
        .where = dcp_checkpoint_path(s->ckpt), .prefix = "/model/", .list = list, .n = tensors};
    if (!status) status = load_found(s, &found, params, err);
    free(params);
    free(list);
    return status;
}

int sample_loaded_open(const char *path, sample_loaded *out, dcp_error *err) {
    sample_loaded s = {0};
    int status = dcp_comm_self(&s.comm, err);
    if (!status) status = dcp_checkpoint_open(s.comm, path, &s.ckpt, err);
    if (!status) status = read_meta(&s, err);
    if (!status) status = make_model(&s, err);
    if (!status) status = load_model(&s, err);
    if (status)
        sample_loaded_close(&s);
    else
        *out = s;
    return status;
}

void sample_loaded_close(sample_loaded *s) {
    model_destroy(s->m);
    free(s->memory);
    free(s->first);
    free(s->params);
    json_decref(s->meta);
    if (s->ckpt) dcp_checkpoint_close(s->ckpt);
    if (s->comm) dcp_comm_destroy(s->comm);
}

const float *const *sample_loaded_params(const sample_loaded *s, size_t stage) {
    return (const float *const *)s->params + s->first[model_stage_unit(s->m, stage)];
}

/* Returns the number of bytes of a character that begins with `first`, or 0 if no character does.
 * The character's second byte, if any, is from *low to *high. This is UTF-8 as in RFC 3629: the
 * shortest form, no surrogates, nothing above U+10FFFF. */
static size_t length_of(unsigned char first, unsigned char *low, unsigned char *high) {
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Returns true if the byte continues the incomplete character. */
static bool continues(const sample_characters *c, unsigned char byte) {
    unsigned char low, high;
    length_of(c->begun[0], &low, &high);
    return c->n == 1 ? byte >= low && byte <= high : byte >= 0x80 && byte <= 0xbf;
}

static void put_byte(sample_characters *c, unsigned char byte, FILE *to) {
    static const char replacement[] = "\xef\xbf\xbd";
    unsigned char low, high;
    if (c->n > 0 && !continues(c, byte)) {
        fputs(replacement, to);
        c->n = 0;
    }
    c->begun[c->n++] = byte;
    const size_t length = length_of(c->begun[0], &low, &high);
    if (c->n < length) return;
    if (length == 0)
        fputs(replacement, to);
    else
        fwrite(c->begun, 1, c->n, to);
    c->n = 0;
}

void sample_characters_put(sample_characters *c, const char *bytes, size_t n, FILE *to) {
    for (size_t i = 0; i < n; i++) put_byte(c, (unsigned char)bytes[i], to);
}

/* sample_choose adds up the tokens' probabilities, and chooses the token at which the sum first
 * exceeds a random number from [0, 1). */

/* Returns number `at` of the seed's sequence of random numbers in [0, 1). */
static double chance(uint64_t seed, uint64_t at) {
    const uint64_t stream = random_stream("sample");
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    uint32_t bits[4];
    random_philox(counter, key, bits);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

bool sample_choose(const float *logits, size_t classes, double temperature, uint64_t seed,
                   uint64_t at, int32_t *out) {
    const size_t best = model_likeliest(logits, classes);
    if (best == classes || !isfinite(logits[best])) return false; /* NaN, or infinite */
    *out = (int32_t)best;
    if (temperature <= 0.0) return true;
    double sum = 0.0, passed = 0.0;
    for (size_t i = 0; i < classes; i++)
        sum += exp(((double)logits[i] - (double)logits[best]) / temperature);
    const double until = chance(seed, at) * sum;
    for (size_t i = 0; i < classes; i++) {
        passed += exp(((double)logits[i] - (double)logits[best]) / temperature);
        if (passed <= until) continue;
        *out = (int32_t)i;
        break;
    }
    return true;
}

/* Tokens are bytes if the step's about.json says that the run's data were text. Older steps, and
 * copies without that file, do not say so; then tokens are bytes if the model has 256 tokens and
 * was trained with dcp-train. A checkpoint that carries a tokenizer is an exception: its tokens are
 * the tokenizer's, unless the model has 256 tokens and was trained on text. */

enum { BYTES = 256, SHOWN = 40 /* characters of an invalid id in a message */ };

static const char space[] = " \t\n\v\f\r"; /* between ids */
static const char section[] = "/files/";

struct sample_tokens {
    bool as_ids;
    const char *where;
    uint64_t classes; /* tokens in the model's vocabulary */
    bool is_begun;    /* an id was written */
    sample_characters written;
};

/* Returns true if the run's data.type was text. *told: whether about.json has a data.type. */
static bool was_text(const sample_loaded *from, bool *told) {
    char *text = NULL;
    const int status = dcp_about_read(dcp_checkpoint_path(from->ckpt), &text, NULL);
    json_t *about = status ? NULL : core_json_read(text, strlen(text), NULL);
    const char *name = json_string_value(json_object_get(about, STATE_DATA_TYPE));
    const bool is = name && strcmp(name, "text") == 0;
    *told = name != NULL;
    json_decref(about);
    free(text);
    return is;
}

/* Returns the name of a tokenizer's file that the checkpoint carries, or NULL. */
static const char *carried_tokenizer(const dcp_checkpoint *ckpt) {
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const char *path = dcp_checkpoint_tensor(ckpt, i)->path;
        if (strncmp(path, section, strlen(section)) == 0 &&
            model_files_is_tokenizer(path + strlen(section)))
            return path + strlen(section);
    }
    return NULL;
}

static bool is_of_bytes(const sample_loaded *from, uint64_t classes, const char *tokenizer) {
    bool told;
    if (was_text(from, &told)) return tokenizer ? classes == BYTES : classes >= BYTES;
    return !told && !tokenizer && classes == BYTES &&
           json_is_object(json_object_get(from->meta, "data"));
}

static int check_bytes(const sample_loaded *from, const sample_tokens *t, dcp_error *err) {
    const char *tokenizer = carried_tokenizer(from->ckpt);
    if (is_of_bytes(from, t->classes, tokenizer)) return DCP_OK;
    if (tokenizer)
        return core_fail(err, DCP_ERR_ARG,
                         "%s: its tokens are those of a tokenizer (%s), which --sample does not "
                         "apply; run examples/sample.py CKPT TEXT, which does, or give token ids "
                         "with --ids",
                         t->where, tokenizer);
    return core_fail(err, DCP_ERR_ARG,
                     "%s: carries no tokenizer, and its tokens are not bytes; give token ids with "
                     "--ids, or run examples/sample.py CKPT TEXT --tokenizer FOLDER",
                     t->where);
}

int sample_tokens_open(const sample_loaded *from, bool as_ids, sample_tokens **out,
                       dcp_error *err) {
    sample_tokens *t = calloc(1, sizeof *t);
    if (!t) return core_fail_memory(err, sizeof *t);
    t->as_ids = as_ids;
    t->where = dcp_checkpoint_path(from->ckpt);
    t->classes = model_sample(from->m, 1).classes;
    const int status = as_ids ? DCP_OK : check_bytes(from, t, err);
    if (status)
        sample_tokens_close(t);
    else
        *out = t;
    return status;
}

void sample_tokens_close(sample_tokens *t) { free(t); }

static void read_bytes(const char *text, int32_t *ids, size_t *n) {
    for (*n = 0; text[*n]; ++*n) ids[*n] = (unsigned char)text[*n];
}

/* Returns the id that a word of n characters represents, or -1 if that is not an id below
 * `classes`. */
static int32_t read_id(const char *word, size_t n, uint64_t classes) {
    uint64_t id = 0;
    for (size_t i = 0; i < n && id < classes; i++) {
        if (!isdigit((unsigned char)word[i])) return -1;
        id = 10 * id + (uint64_t)(word[i] - '0');
    }
    return id < classes ? (int32_t)id : -1;
}

static int read_ids(const sample_tokens *t, const char *text, int32_t *ids, size_t *n,
                    dcp_error *err) {
    *n = 0;
    for (size_t length; *(text += strspn(text, space)); text += length) {
        length = strcspn(text, space);
        const int32_t id = read_id(text, length, t->classes);
        if (id < 0)
            return core_fail(
                err, DCP_ERR_ARG,
                "--ids: '%.*s' is not a token of the model, whose vocab_size is %" PRIu64
                "; give ids from 0 to %" PRIu64 ", separated by spaces",
                (int)(length < SHOWN ? length : SHOWN), text, t->classes, t->classes - 1);
        ids[(*n)++] = id;
    }
    return DCP_OK;
}

int sample_tokens_read(const sample_tokens *t, const char *text, int32_t **ids, size_t *n,
                       dcp_error *err) {
    const size_t bytes = (strlen(text) + 1) * sizeof **ids; /* an id has at least one character */
    *ids = malloc(bytes);
    if (!*ids) return core_fail_memory(err, bytes);
    if (t->as_ids) return read_ids(t, text, *ids, n, err);
    read_bytes(text, *ids, n);
    return DCP_OK;
}

/* Writes nothing for an id above 255, which is not a byte; a vocabulary that is rounded up has such
 * ids. */
static void write_byte(sample_tokens *t, int32_t id) {
    const char byte = (char)id;
    if (id < BYTES) sample_characters_put(&t->written, &byte, 1, stdout);
}

void sample_tokens_write(sample_tokens *t, int32_t id) {
    if (!t->as_ids) {
        write_byte(t, id);
        return;
    }
    printf("%s%" PRId32, t->is_begun ? " " : "", id);
    t->is_begun = true;
}
