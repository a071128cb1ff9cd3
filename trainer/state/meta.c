/* Writes and reads the place of a run among its samples. A resumed run continues with the seed that
 * it was started with, because the seed determines the order of samples. Everything else follows
 * the current configuration; differences are reported. */
#include "state/meta.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "ranks/log.h"

/* The member of "data" that says whether images are normalized. */
static const char normalized[] = "normalized";
static const char warmup_type[] = "warmup_type"; /* a member of "schedule"; linear if missing */
static const char evaluation_due[] = "evaluation_due";
/* The member of "data" that exists only if a sample consists of several records. */
static const char packed[] = "pack";

json_t *state_meta_model(const json_t *given) {
    json_t *stored = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)given, key, value) {
        if (key[0] == '_' || strcmp(key, "transformers_version") == 0) continue;
        if (json_object_set(stored, key, value) != 0) {
            json_decref(stored);
            return NULL;
        }
    }
    return stored;
}

/* Returns the values on which the learning rate depends, apart from the step. */
static json_t *schedule_object(const config *c) {
    static const char *const names[] = {
        [SCHEDULE_CONSTANT] = "constant",
        [SCHEDULE_LINEAR] = "linear",
        [SCHEDULE_COSINE] = "cosine",
        [SCHEDULE_WSD] = "wsd",
    };
    json_t *o = json_pack("{sssfsI}", "type", names[c->schedule], "lr", c->lr, "warmup_steps",
                          (json_int_t)c->warmup_steps);
    if (o && c->warmup_is_log) json_object_set_new(o, warmup_type, json_string("log"));
    if (!o || c->schedule == SCHEDULE_CONSTANT) return o;
    json_object_set_new(o, "max_steps", json_integer((json_int_t)c->max_steps));
    json_object_set_new(o, "min_lr_ratio", json_real(c->min_lr_ratio));
    if (c->schedule == SCHEDULE_WSD)
        json_object_set_new(o, "decay_ratio", json_real(c->decay_ratio));
    return o;
}

static json_t *data_object(const meta_data *data, const config *c) {
    char checksum[17];
    snprintf(checksum, sizeof checksum, "%016" PRIx64, data->fingerprint);
    json_t *o =
        json_pack("{sIss}", "epoch_samples", (json_int_t)data->epoch_samples, "checksum", checksum);
    if (o && data->sequence)
        json_object_set_new(o, "sequence_length", json_integer((json_int_t)data->sequence));
    if (o && c->frames) json_object_set_new(o, "frames", json_integer((json_int_t)c->frames));
    if (o && c->packs) json_object_set_new(o, packed, json_true());
    return o;
}

/* Returns a copy of a value, in which all numbers are reals, so that 0 and 0.0 are stored alike.
 * The caller owns the reference. */
static json_t *with_reals(json_t *value) {
    if (json_is_number(value)) return json_real(json_number_value(value));
    if (!json_is_array(value)) return json_incref(value);
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(value); i++)
        json_array_append_new(list, with_reals(json_array_get(value, i)));
    return list;
}

/* Returns the values on which the update depends, apart from the gradient and the learning rate. */
static json_t *optimizer_object(const config *c) {
    json_t *o = json_pack("{ss}", "type", c->optimizer);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)c->optimizer_params, key, value) {
        if (strcmp(key, "lr") != 0) json_object_set_new(o, key, with_reals(value));
    }
    return o;
}

/* Returns the members at the top level, outside any section: the values on which a step's gradient
 * depends, apart from data and model. The micro-batch is one of them, because it determines the
 * order of the sums. */
static json_t *batch_members(const config *c) {
    return json_pack("{sIsIsfsOsbsb}", "train_batch_size", (json_int_t)c->batch,
                     "train_micro_batch_size_per_gpu", (json_int_t)c->micro, "gradient_clipping",
                     c->clipping, "frozen", c->frozen, "bf16", c->bf16, "ring", c->ring);
}

static json_t *random_object(const train_state *s) {
    return json_pack("{sssI}", "generator", "philox4x32-10", "seed", (json_int_t)s->seed);
}

/* Returns the object STATE_META_SINCE, which lists only parameters whose moments were zero at a
 * step other than 0. NULL if there are none, or if out of memory. */
static json_t *since_object(const train_state *s) {
    json_t *since = NULL;
    for (size_t i = 0; i < s->layout->n_params; i++) {
        const model_param *param = &s->layout->params[i].info;
        if (param->frozen || s->since[i] == 0) continue;
        if (!since) since = json_object();
        json_object_set_new(since, param->name, json_integer(s->since[i]));
    }
    return since;
}

int state_meta_write(const train_state *s, const config *c, const meta_data *data, char **text,
                     dcp_error *err) {
    json_t *o = json_pack("{sIsIsososososo}", "samples", (json_int_t)s->samples, "tokens",
                          (json_int_t)s->tokens, "rng", random_object(s), "schedule",
                          schedule_object(c), "optimizer", optimizer_object(c), "data",
                          data_object(data, c), "model", state_meta_model(c->model));
    json_t *batch = batch_members(c);
    const bool failed = !o || !batch || json_object_update(o, batch) != 0;
    json_t *since = since_object(s);
    if (since && !failed) json_object_set(o, STATE_META_SINCE, since);
    if (s->normalizes && !failed)
        json_object_set_new(json_object_get(o, "data"), normalized, json_true());
    if (s->owes_evaluation && !failed) json_object_set_new(o, evaluation_due, json_true());
    json_decref(since);
    *text = failed ? NULL : core_json_text(o, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(batch);
    json_decref(o);
    return *text ? DCP_OK : core_fail_memory(err, 4096);
}

/* Writes the configuration's key for the value that is stored as `key` of `section`; section is ""
 * for members at the top level. */
static void as_configured(const char *section, const char *key, char *out, size_t size) {
    static const struct {
        const char *section, *key, *name; /* key NULL: any other key of the section; it is appended
                                           * to `name` */
    } names[] = {
        {"schedule", "type", "scheduler.type"},
        {"schedule", "lr", "optimizer.params.lr"},
        {"schedule", "max_steps", "max_steps"},
        {"schedule", NULL, "scheduler.params."},
        {"optimizer", "type", "optimizer.type"},
        {"optimizer", NULL, "optimizer.params."},
        {"data", "epoch_samples", "data.path, whose samples are"},
        {"data", "checksum", "data.path, whose samples have the checksum"},
        {"", "bf16", "bf16.enabled"},
        {"", "ring", "zero_optimization.ring"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *known = names[i].key;
        if (strcmp(names[i].section, section) != 0 || (known && strcmp(known, key) != 0)) continue;
        snprintf(out, size, "%s%s", names[i].name, known ? "" : key);
        return;
    }
    snprintf(out, size, "%s%s%s", section, *section ? "." : "", key);
}

/* Returns true if the key does not influence what a model computes. dcp-export writes its own
 * values of such keys. */
static bool is_label(const char *section, const char *key) {
    static const char *const labels[] = {"architectures", "dtype", "torch_dtype",
                                         "transformers_version"};
    for (size_t i = 0; i < sizeof labels / sizeof *labels && strcmp(section, "model") == 0; i++)
        if (strcmp(labels[i], key) == 0) return true;
    return false;
}

/* Warns about each key whose values differ between the two objects. section: the object's name in
 * the checkpoint's JSON, or "" for members at the top level. */
static void warn_differences(int rank, const char *section, const json_t *there,
                             const json_t *here) {
    json_t *all = json_copy((json_t *)here);
    json_object_update_missing(all, (json_t *)there);
    const char *key;
    json_t *value;
    json_object_foreach(all, key, value) {
        const json_t *a = json_object_get(there, key), *b = json_object_get(here, key);
        if (json_equal(a, b) || is_label(section, key)) continue;
        const bool is_of_type = strcmp(section, "schedule") == 0 && strcmp(key, warmup_type) != 0;
        if (is_of_type && (!a || !b)) continue; /* the difference of "type" is reported instead */
        const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15);
        char *was = a ? core_json_text(a, flags) : NULL, *is = b ? core_json_text(b, flags) : NULL;
        char name[512];
        as_configured(section, key, name, sizeof name);
        ranks_warn(rank, "the checkpoint was saved with %s %s, but the run continues with %s", name,
                   was ? was : "unset", is ? is : "unset");
        free(was);
        free(is);
    }
    json_decref(all);
}

static void warn_object_differs(int rank, const char *section, const json_t *there, json_t *here) {
    if (there && here) warn_differences(rank, section, there, here);
    json_decref(here);
}

/* Returns the members of `all` whose names are in `names`. A member that `all` lacks gets the value
 * that it has in `names`, so it does not count as different. Returns a new reference, or NULL. */
static json_t *members_named(const json_t *all, const json_t *names) {
    json_t *found = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)names, key, value) {
        json_t *given = json_object_get(all, key);
        json_object_set(found, key, given ? given : value);
    }
    return found;
}

static void warn_batch_differs(int rank, const json_t *there, const config *c) {
    json_t *here = batch_members(c), *members = here ? members_named(there, here) : NULL;
    warn_object_differs(rank, "", members, here);
    json_decref(members);
}

static int read_count(const json_t *o, const char *key, uint64_t *out, dcp_error *err) {
    const json_t *value = json_object_get(o, key);
    const json_int_t n = json_integer_value(value);
    if (value && (!json_is_integer(value) || n < 0))
        return core_fail(err, DCP_ERR_CORRUPT, "the checkpoint's \"%s\" is not a count", key);
    *out = (uint64_t)n;
    return DCP_OK;
}

static void read_seed(meta_position *place, const meta_run *run, const json_t *rng) {
    const json_t *seed = json_object_get(rng, "seed");
    const uint64_t own = run->c->seed;
    place->seed = json_is_integer(seed) ? (uint64_t)json_integer_value(seed) : own;
    if (place->seed != own)
        ranks_warn(run->rank,
                   "seed %" PRIu64
                   " of the checkpoint is used instead of the configuration's %" PRIu64
                   ": it determines the order of the samples",
                   place->seed, own);
}

/* Reports differences between the checkpoint's data and the run's. Returns true if the samples
 * differ. The checksum covers samples after the data were cut into them, so it is compared only if
 * the data were cut in the same way. Older checkpoints have no checksum. */
static bool report_data_differences(const meta_run *run, const json_t *there) {
    json_t *here = data_object(&run->data, run->c);
    json_t *was = json_deep_copy(there), *checksum = json_object_get(here, "checksum");
    const json_t *old = json_object_get(there, "checksum"); /* not from `was`, whose member is
                                                             * replaced */
    json_object_set(was, "checksum", checksum);
    json_object_del(was, normalized); /* not compared: a run continues as it began */
    if (!json_object_get(was, packed) != !json_object_get(here, packed))
        json_object_set_new(json_object_get(here, packed) ? was : here, packed, json_false());
    const bool is_cut_alike = json_equal(was, here);
    const bool is_other = there && (!is_cut_alike || (old && !json_equal(old, checksum)));
    if (is_cut_alike) json_object_del(was, "checksum");
    if (is_cut_alike && old) json_object_set(was, "checksum", (json_t *)old);
    warn_object_differs(run->rank, "data", was, here);
    json_decref(was);
    return is_other;
}

static void warn_all(const meta_run *run, const json_t *there) {
    const int rank = run->rank;
    const config *c = run->c;
    warn_object_differs(rank, "model", json_object_get(there, "model"), state_meta_model(c->model));
    warn_object_differs(rank, "schedule", json_object_get(there, "schedule"), schedule_object(c));
    warn_object_differs(rank, "optimizer", json_object_get(there, "optimizer"),
                        optimizer_object(c));
    warn_batch_differs(rank, there, c);
}

int state_meta_read(const meta_run *run, const char *text, meta_position *out, dcp_error *err) {
    json_t *o;
    int status = core_json_parse_object(text, strlen(text), &o, err);
    if (status == DCP_ERR_ARG)
        core_fail(err, status = DCP_ERR_CORRUPT, "the checkpoint's JSON cannot be parsed");
    if (status != DCP_OK) return status;
    status = read_count(o, "samples", &out->samples, err);
    if (status == DCP_OK) status = read_count(o, "tokens", &out->tokens, err);
    if (status == DCP_OK) {
        read_seed(out, run, json_object_get(o, "rng"));
        warn_all(run, o);
        out->has_other_data = report_data_differences(run, json_object_get(o, "data"));
        out->has_raw_images =
            json_object_get(o, "samples") &&
            !json_is_true(json_object_get(json_object_get(o, "data"), normalized));
        out->owes_evaluation = json_is_true(json_object_get(o, evaluation_due));
    }
    json_decref(o);
    return status;
}

bool state_meta_owes_evaluation(const char *text) {
    json_t *o = core_json_read(text, strlen(text), NULL);
    const bool owes = json_is_true(json_object_get(o, evaluation_due));
    json_decref(o);
    return owes;
}
