/* The model processes the text in pieces, then one chosen token at a time; a cache stores the keys
 * and values of the earlier tokens. */
#include "sample/generate.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model_run.h"
#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/program.h"
#include "sample/tokens.h"
#include <dcp/store.h>

enum { PIECE = 64 }; /* tokens of the text that are processed together */
enum { MOST_GENERATION = 1 << 20 };

typedef struct sampling {
    const sample_options *o;
    sample_loaded *from;
    sample_tokens *tokens;
    int32_t *ids; /* [n] the text's tokens */
    size_t n;
    uint64_t most; /* the maximum number of tokens to generate */
    json_t *eos;   /* the token that ends a text, or a list of such tokens; may be NULL */
    model_run *run;
    float *logits; /* [classes] */
    size_t classes;
} sampling;

static const json_t *config_of(const sampling *s) {
    return json_object_get(s->from->meta, "model");
}

/* An empty text begins with the model's bos_token_id, if it has one. */
static int begin_with_bos(sampling *s, dcp_error *err) {
    const json_t *bos = json_object_get(config_of(s), "bos_token_id");
    const json_int_t id = json_integer_value(bos);
    if (!json_is_integer(bos) || id < 0 || (uint64_t)id >= s->classes)
        return core_fail(err, DCP_ERR_ARG,
                         "--sample: the text is empty, and the model of %s has no bos_token_id to "
                         "begin with; give it a text",
                         dcp_checkpoint_path(s->from->ckpt));
    free(s->ids);
    s->ids = malloc(sizeof *s->ids);
    if (!s->ids) return core_fail_memory(err, sizeof *s->ids);
    s->ids[0] = (int32_t)id;
    s->n = 1;
    return DCP_OK;
}

static int check_room(sampling *s, dcp_error *err) {
    static const char limit[] = "max_position_embeddings";
    const uint64_t most = model_max_sequence(s->from->m), asked = s->o->tokens;
    if (s->n >= most)
        return core_fail(err, DCP_ERR_ARG,
                         "--sample: the text has %zu tokens, and the model's %s is %" PRIu64
                         ": nothing can follow; give it a shorter text",
                         s->n, limit, most);
    const uint64_t room = most - s->n;
    if (asked > room)
        return core_fail(err, DCP_ERR_ARG,
                         "--tokens: %" PRIu64
                         " tokens after a text of %zu are more than the model's %s %" PRIu64
                         "; at most %" PRIu64 " fit",
                         asked, s->n, limit, most, room);
    s->most = asked ? asked : room < SAMPLE_TOKENS ? room : SAMPLE_TOKENS;
    return DCP_OK;
}

/* Reads the generation_config.json that the checkpoint carries; *out is NULL if there is none. */
static int read_generation(dcp_checkpoint *ckpt, json_t **out, dcp_error *err) {
    static const char path[] = "/files/generation_config.json";
    const dcp_tensor *file = dcp_checkpoint_find(ckpt, path);
    *out = NULL;
    if (!file || dcp_tensor_bytes(file) > MOST_GENERATION) return DCP_OK;
    const dcp_box whole = dcp_box_whole(file);
    const uint64_t bytes = dcp_tensor_bytes(file);
    char *text = malloc(bytes + 1);
    if (!text) return core_fail_memory(err, bytes + 1);
    const int status = dcp_checkpoint_read(ckpt, path, &whole, text, err);
    if (!status) *out = core_json_read(text, bytes, NULL);
    free(text);
    return status;
}

/* Finds the tokens that end a text. As in transformers, generation_config.json takes precedence
 * over config.json. */
static int find_ends(sampling *s, dcp_error *err) {
    json_t *generation;
    const int status = read_generation(s->from->ckpt, &generation, err);
    const json_t *eos = json_object_get(generation, "eos_token_id");
    if (!eos || json_is_null(eos)) eos = json_object_get(config_of(s), "eos_token_id");
    s->eos = json_incref((json_t *)eos);
    json_decref(generation);
    return status;
}

static int begin(sampling *s, dcp_error *err) {
    const model *m = s->from->m;
    s->classes = model_sample(m, 1).classes;
    int status = sample_tokens_open(s->from, s->o->ids, &s->tokens, err);
    if (!status) status = sample_tokens_read(s->tokens, s->o->text, &s->ids, &s->n, err);
    if (!status && s->n == 0) status = begin_with_bos(s, err);
    if (!status) status = check_room(s, err);
    if (!status) status = find_ends(s, err);
    if (!status)
        status =
            model_run_create_cached(m, s->n < PIECE ? s->n : PIECE, s->n + s->most, &s->run, err);
    if (status) return status;
    s->logits = malloc(s->classes * sizeof *s->logits);
    return s->logits ? DCP_OK : core_fail_memory(err, s->classes * sizeof *s->logits);
}

static void take_logits(sampling *s) {
    kernels_type type;
    const void *from = model_run_logits(s->run, &type);
    if (type == KERNELS_F32) memcpy(s->logits, from, s->classes * sizeof *s->logits);
    for (size_t i = 0; type == KERNELS_BF16 && i < s->classes; i++) {
        const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
        memcpy(&s->logits[i], &bits, sizeof bits);
    }
}

/* Computes the logits of the token after ids[n]. */
static int compute_logits(sampling *s, const int32_t *ids, size_t n, dcp_error *err) {
    int status = DCP_OK;
    for (size_t done = 0, piece; done < n && !status; done += piece) {
        piece = n - done < PIECE ? n - done : PIECE;
        status = model_run_set_piece(s->run, ids + done, piece, err);
        for (size_t stage = 0; stage < model_stages(s->from->m) && !status; stage++)
            model_forward(s->run, stage, sample_loaded_params(s->from, stage));
    }
    if (!status) take_logits(s);
    return status;
}

static bool is_end(const sampling *s, int32_t id) {
    for (size_t i = 0; i < json_array_size(s->eos); i++)
        if (json_integer_value(json_array_get(s->eos, i)) == id) return true;
    return json_is_integer(s->eos) && json_integer_value(s->eos) == id;
}

static int write_text(sampling *s, dcp_error *err) {
    int status = compute_logits(s, s->ids, s->n, err);
    for (uint64_t i = 0; i < s->most && !status; i++) {
        int32_t id;
        if (!sample_choose(s->logits, s->classes, s->o->temperature, s->o->seed, i, &id))
            return core_fail(err, DCP_ERR_IO,
                             "%s: the model's logits are not numbers: its training has diverged; "
                             "use an earlier step",
                             dcp_checkpoint_path(s->from->ckpt));
        if (is_end(s, id)) break;
        sample_tokens_write(s->tokens, id);
        if (fflush(stdout) != 0) break; /* nobody reads the output any more */
        if (i + 1 < s->most) status = compute_logits(s, &id, 1, err);
    }
    putchar('\n');
    return status;
}

static void end(sampling *s) {
    sample_tokens_close(s->tokens);
    model_run_destroy(s->run);
    json_decref(s->eos);
    free(s->logits);
    free(s->ids);
}

/* Loads a directory's newest intact step. Warns about damaged steps. */
static int load_newest(const char *dir, const dcp_step *steps, size_t n, sample_loaded *out,
                       dcp_error *err) {
    int status = DCP_ERR_CORRUPT;
    for (size_t i = n; i-- > 0 && status == DCP_ERR_CORRUPT;) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s", dir, steps[i].name) >= (int)sizeof path)
            return core_fail(err, DCP_ERR_ARG, "%s: the path is too long", dir);
        status = sample_loaded_open(path, out, err);
        if (status == DCP_ERR_CORRUPT && i > 0)
            program_note("warning: %s; using the previous step", err->message);
    }
    return status;
}

/* Loads the newest step of a directory, or the step itself if `ckpt` contains no steps. */
static int load(const char *ckpt, sample_loaded *out, dcp_error *err) {
    dcp_step *steps = NULL;
    size_t all = 0, n = 0;
    int status = dcp_steps_list(ckpt, &steps, &all, err);
    for (size_t i = 0; i < all && !status; i++)
        if (steps[i].kind == DCP_STEP_COMPLETE) steps[n++] = steps[i];
    if (!status)
        status = n ? load_newest(ckpt, steps, n, out, err) : sample_loaded_open(ckpt, out, err);
    free(steps);
    return status;
}

/* Fails with *why; if no checkpoint is at the path, or it is damaged, the message also names the
 * remedy. */
static int fail_load(int status, const dcp_error *why, dcp_error *err) {
    const bool is_useless = status == DCP_ERR_NOT_FOUND || status == DCP_ERR_CORRUPT;
    return core_fail(err, status, "%s%s", why->message,
                     is_useless ? "; give an intact checkpoint" : "");
}

int sample_generate(const sample_options *o) {
    sample_loaded from = {0};
    sampling s = {.o = o, .from = &from};
    dcp_error why, err;
    int status = load(o->ckpt, &from, &why);
    if (status) fail_load(status, &why, &err);
    if (!status) status = begin(&s, &err);
    if (!status) status = write_text(&s, &err);
    end(&s);
    sample_loaded_close(&from);
    return status ? program_report(&err) : PROGRAM_DONE;
}
