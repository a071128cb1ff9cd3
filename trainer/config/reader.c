/* Reads a file and overrides, and makes a checked configuration. The user's tree is walked once to
 * check that every key is known and has a valid value. Then the effective tree is built from the
 * schema, key by key, and the struct is filled from that tree. */
#include "config/reader.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/deepspeed.h"
#include "config/findings.h"
#include "config/json_tree.h"
#include "config/lists.h"
#include "config/path_checks.h"
#include "config/schema.h"
#include "config/suggest.h"
#include "programs/fail.h"

static const char LINE[] = "command line";

typedef struct config_overrides {
    char *const *at;
    int n;
} config_overrides;

/* Sets *out to the model's object: `model` itself if it is an object. Otherwise `model` is the path
 * of a file that contains the object, or of a folder whose config.json contains it. */
static int resolve_model(json_t *model, json_t **out, dcp_error *err) {
    const char *given = json_string_value(model);
    if (!given) {
        *out = json_incref(model);
        return DCP_OK;
    }
    char path[4096];
    struct stat st;
    const bool folder = stat(given, &st) == 0 && S_ISDIR(st.st_mode);
    const int n = snprintf(path, sizeof path, "%s%s", given, folder ? "/config.json" : "");
    if (n < 0 || (size_t)n >= sizeof path)
        return core_fail(err, DCP_ERR_ARG, "model: the path is too long");
    dcp_error why;
    const int status = config_json_read(path, out, &why);
    return status == DCP_OK ? DCP_OK : core_fail(err, status, "model: %s", why.message);
}

static void note_unknown(const char *path, config_findings *f) {
    char nearest[CONFIG_PATH_MAX];
    if (config_suggest_key(path, nearest))
        config_findings_add(f, CONFIG_WRONG, "%.300s: unknown key; did you mean %s?", path,
                            nearest);
    else
        config_findings_add(f, CONFIG_WRONG,
                            "%.300s: unknown key, and no known key is similar; dcp-train.json(5) "
                            "describes all keys",
                            path);
}

static void note_no_group(const char *path, config_findings *f) {
    char enabled[CONFIG_PATH_MAX];
    snprintf(enabled, sizeof enabled, "%s.enabled", path);
    if (config_key_find(enabled))
        config_findings_add(f, CONFIG_WRONG, "%s: not an object; did you mean %s?", path, enabled);
    else
        config_findings_add(f, CONFIG_WRONG, "%s: not an object; an object with keys is required",
                            path);
}

static void check_tree(const json_t *tree, const char *prefix, config_findings *f);

static void check_entry(const char *path, const json_t *value, config_findings *f) {
    const config_key *key = config_key_find(path);
    dcp_error err;
    if (key && config_key_check(key, value, &err) != DCP_OK)
        config_findings_add(f, CONFIG_WRONG, "%s", err.message);
    if (key) return;
    if (!config_key_is_group(path))
        note_unknown(path, f);
    else if (!json_is_object(value))
        note_no_group(path, f);
    else
        check_tree(value, path, f);
}

static void check_tree(const json_t *tree, const char *prefix, config_findings *f) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)tree, name, value) {
        char path[512];
        const int n = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", name);
        if (n < 0 || (size_t)n >= sizeof path || strchr(name, '.'))
            config_findings_add(
                f, CONFIG_WRONG,
                "%.300s: unknown key; in a file, write nested objects instead of dots", path);
        else
            check_entry(path, value, f);
    }
}

static void check_missing(const json_t *given, config_findings *f) {
    for (size_t i = 0; i < config_keys_count; i++)
        if (!config_keys[i].fallback && !config_json_at(given, config_keys[i].path))
            config_findings_add(f, CONFIG_WRONG, "%s: missing; it has no default: set it",
                                config_keys[i].path);
}

/* Returns the text with <checkpoint.dir> at its beginning replaced by the value of that key; NULL
 * if it begins differently. In the table, checkpoint.dir precedes the keys that refer to it. */
static json_t *in_checkpoint_dir(const char *text, const json_t *tree) {
    static const char dir[] = "<checkpoint.dir>";
    if (strncmp(text, dir, sizeof dir - 1) != 0) return NULL;
    return json_sprintf("%s%s", json_string_value(config_json_at(tree, "checkpoint.dir")),
                        text + sizeof dir - 1);
}

/* Returns the default. The default of data.sequence_length is null if the data are a stored batch,
 * because its file determines the length. tree: the effective values of the preceding keys. */
static json_t *fallback(const config_key *key, const json_t *given, const json_t *tree) {
    const char *type = json_string_value(config_json_at(given, "data.type"));
    if (strcmp(key->path, "data.sequence_length") == 0 && type && strcmp(type, "safetensors") == 0)
        return json_null();
    json_t *value = json_loads(key->fallback, JSON_DECODE_ANY, NULL);
    json_t *placed =
        json_is_string(value) ? in_checkpoint_dir(json_string_value(value), tree) : NULL;
    if (!placed) return value;
    json_decref(value);
    return placed;
}

/* Returns a new reference to a given value. 1e3 becomes 1000 if the key requires an integer. */
static json_t *take_value(const config_key *key, json_t *value) {
    return key->type == CONFIG_INTEGER && json_is_real(value)
               ? json_integer((json_int_t)json_real_value(value))
               : json_incref(value);
}

/* Makes the tree of all keys with their effective values. This can be done in the table's order,
 * because optimizer.type precedes the keys that only some optimizers have. */
static int effective_tree(const json_t *given, json_t **out, dcp_error *err) {
    json_t *tree = json_object();
    bool failed = !tree;
    for (size_t i = 0; i < config_keys_count && !failed; i++) {
        const config_key *key = &config_keys[i];
        json_t *value = config_json_at(given, key->path);
        if (config_key_of(key->path, json_string_value(config_json_at(tree, "optimizer.type"))) !=
            key)
            continue;
        value = value ? take_value(key, value) : fallback(key, given, tree);
        if (key->complete) failed = key->complete(value) != 0;
        failed |= config_json_set(tree, key->path, value) != 0;
    }
    if (failed) {
        json_decref(tree);
        return core_fail_memory(err, 0);
    }
    *out = tree;
    return DCP_OK;
}

/* Refuses keys that another optimizer has, but the chosen one does not. */
static int check_optimizer(const json_t *given, const json_t *tree, dcp_error *err) {
    const char *optimizer = json_string_value(config_json_at(tree, "optimizer.type"));
    for (size_t i = 0; i < config_keys_count; i++) {
        const config_key *key = &config_keys[i];
        if (config_json_at(given, key->path) && !config_key_of(key->path, optimizer))
            return core_fail(
                err, DCP_ERR_ARG,
                "%s: a key of %s, which %s does not have; leave it out, or change optimizer.type",
                key->path, key->optimizer, optimizer);
    }
    return DCP_OK;
}

static int check_sequence(const json_t *tree, dcp_error *err) {
    const char *type = json_string_value(config_json_at(tree, "data.type"));
    if (json_integer_value(config_json_at(tree, "data.sequence_length")) ||
        strcmp(type, "idx") == 0 || strcmp(type, "safetensors") == 0)
        return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "data.sequence_length: null is possible only with data.type safetensors, "
                     "whose file determines the length; data.type %s needs a number",
                     type);
}

/* Checks the keys that say which steps remain in addition to the newest ones. */
static int check_policies(const config *c, dcp_error *err) {
    const char *key = c->keep_every ? "keep_every" : c->keep_seconds ? "keep_seconds" : "keep_best";
    const bool evaluates = c->eval_path && c->eval_every > 0;
    if ((c->keep_every || c->keep_seconds || c->keep_best) && c->keep == 0)
        return core_fail(err, DCP_ERR_ARG,
                         "checkpoint.%s: checkpoint.keep is 0, so all steps are kept anyway; set "
                         "checkpoint.keep to the number of newest steps to keep",
                         key);
    if (c->keep_best && !evaluates && strcmp(c->keep_metric, "loss") != 0)
        return core_fail(err, DCP_ERR_ARG,
                         "checkpoint.keep_best: no step has the value %s; set data.eval_path and "
                         "eval_every, or checkpoint.keep_metric to loss",
                         c->keep_metric);
    return DCP_OK;
}

/* Checks the conditions that involve several keys. */
static int check_together(const config *c, dcp_error *err) {
    if (c->n_sources && strcmp(c->data_type, "safetensors") == 0)
        return core_fail(
            err, DCP_ERR_ARG,
            "data.sources: data.type safetensors has one fixed batch; leave data.sources out");
    if (c->packs && strcmp(c->data_type, "records") != 0)
        return core_fail(err, DCP_ERR_ARG,
                         "data.pack: data.type %s has no records to pack; leave data.pack out, or "
                         "set data.type=records",
                         c->data_type);
    const bool speaks = strcmp(c->data_type, "speech") == 0;
    if (speaks && !c->frames)
        return core_fail(err, DCP_ERR_ARG,
                         "data.frames: data.type speech needs it; set it to the most frames that a "
                         "recording has, which to_records.py prints");
    if (!speaks && c->frames)
        return core_fail(err, DCP_ERR_ARG,
                         "data.frames: data.type %s has no frames; leave data.frames out, or set "
                         "data.type=speech",
                         c->data_type);
    if (c->batch % c->micro != 0)
        return core_fail(err, DCP_ERR_ARG,
                         "train_batch_size: %" PRIu64
                         " is not a multiple of train_micro_batch_size_per_gpu %" PRIu64
                         "; change one of them",
                         c->batch, c->micro);
    if (c->stripe_bytes % STRIPE_UNIT)
        return core_fail(err, DCP_ERR_ARG,
                         "checkpoint.stripe_bytes: %" PRIu64 " is not a multiple of %d",
                         c->stripe_bytes, STRIPE_UNIT);
    if (c->eval_every > 0 && !c->eval_path)
        return core_fail(
            err, DCP_ERR_ARG,
            "eval_every: %" PRIu64
            ", but there is no data.eval_path; set data.eval_path, or leave eval_every out",
            c->eval_every);
    if (c->offloads && !c->offload_path && strcmp(c->device, "cpu") == 0)
        return core_fail(err, DCP_ERR_ARG, "%s", config_no_offload);
    if (!c->offloads && c->offload_path)
        return core_fail(err, DCP_ERR_ARG,
                         "fsdp.offload_path: %.300s, but fsdp.cpu_offload is false; set "
                         "fsdp.cpu_offload to true, or leave fsdp.offload_path out",
                         c->offload_path);
    return check_policies(c, err);
}

/* Fills the struct from c->tree. */
static void fill_struct(config *c) {
    config_schema_fill(c);
    c->optimizer_params = config_json_at(c->tree, "optimizer.params");
    dcp_engine_parse(c->engine_name, &c->engine);
    c->by_hdf5 = c->engine == DCP_ENGINE_MPIO;
    c->staging_bytes = c->staging_mb << 20;
    c->n_sources = config_sources_fill(config_json_at(c->tree, "data.sources"), c->sources);
    c->n_stores =
        config_stores_fill(config_json_at(c->tree, "checkpoint.stores"), c->domain, c->stores);
    c->stores[c->n_stores++] =
        (dcp_tier){.size = sizeof(dcp_tier),
                   .path = c->dir,
                   .every = c->every,
                   .keep = (uint32_t)c->keep,
                   .layout = c->layout,
                   .stripe_count = (int64_t)c->stripe_count,
                   .stripe_bytes = c->stripe_bytes,
                   .keep_every = c->keep_every,
                   .keep_seconds = c->keep_seconds,
                   .keep_best = (uint32_t)c->keep_best,
                   .keep_highest = strcmp(c->keep_metric, "eval_accuracy") == 0,
                   .keep_metric = c->keep_metric};
}

/* Takes over `tree` and `model`. */
static int assemble(json_t *tree, json_t *model, config **out, dcp_error *err) {
    config *c = calloc(1, sizeof *c);
    if (!c) {
        json_decref(tree);
        json_decref(model);
        return core_fail_memory(err, sizeof *c);
    }
    c->tree = tree;
    c->model = model;
    fill_struct(c);
    int status = check_together(c, err);
    if (status == DCP_OK) status = config_paths_check(c, err);
    if (status == DCP_OK)
        *out = c;
    else
        config_free(c);
    return status;
}

/* Puts the source of a mistake, the file or the command line, in front of the message. */
static int blame(const char *source, int status, dcp_error *err) {
    if (status == DCP_OK) return DCP_OK;
    const dcp_error why = *err;
    return core_fail(err, status, "%s: %s", source, why.message);
}

/* Parses the value of an override `key.path=value` on the command line. The value is JSON if it can
 * be parsed, otherwise a string. If the key requires a string, the value is the text itself unless
 * it is a JSON string or null, so that `data.path=2024` works. Returns NULL if the value is not
 * UTF-8 or contains a key twice; *duplicate is set in the second case. */
static json_t *parse_value(const char *path, const char *text, bool *duplicate) {
    const config_key *key = config_key_find(path);
    json_error_t where;
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &where);
    const bool text_asked = key && key->type == CONFIG_TEXT;
    *duplicate = !value && !text_asked && json_error_code(&where) == json_error_duplicate_key;
    if (*duplicate) return NULL;
    if (value && text_asked && !json_is_string(value) && !json_is_null(value)) {
        json_decref(value);
        value = NULL;
    }
    return value ? value : json_string(text);
}

/* If the model is given by a path, replaces the path by the model's object, so that an override can
 * change one of the object's keys. */
static int open_model(json_t *tree, dcp_error *err) {
    json_t *model = json_object_get(tree, "model");
    if (!json_is_string(model)) return DCP_OK;
    const int status = resolve_model(model, &model, err);
    if (status == DCP_OK) json_object_set_new(tree, "model", model);
    return status;
}

static int apply_override(json_t *tree, const char *assignment, dcp_error *err) {
    if (strncmp(assignment, "model.", 6) == 0) {
        const int status = open_model(tree, err);
        if (status != DCP_OK) return status;
    }
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return core_fail(err, DCP_ERR_ARG, "\"%.300s\" is not of the form key.path=value",
                         assignment);
    char *path = strndup(assignment, (size_t)(equals - assignment));
    if (!path) return core_fail_memory(err, strlen(assignment));
    int status = DCP_OK;
    bool duplicate;
    json_t *value = parse_value(path, equals + 1, &duplicate);
    if (duplicate)
        status = core_fail(err, DCP_ERR_ARG,
                           "%.300s: the value has a key twice; drop one of the two", path);
    else if (!value)
        status =
            core_fail(err, DCP_ERR_ARG, "%.300s: the value is not UTF-8; write it in UTF-8", path);
    else if (config_json_set(tree, path, value) != 0)
        status = core_fail(err, DCP_ERR_ARG,
                           "%.300s: a part of this path is set to a value without keys", path);
    free(path);
    return status;
}

static int apply(json_t *tree, char *const *overrides, int n, dcp_error *err) {
    int status = DCP_OK;
    for (int i = 0; i < n && status == DCP_OK; i++)
        status = apply_override(tree, overrides[i], err);
    return status;
}

/* Makes a tree of the overrides alone and checks it, so that their mistakes are not attributed to
 * the file. *meant receives dcp-train's keys into which DeepSpeed's keys among the overrides are
 * translated. */
static int read_overrides(char *const *overrides, int n, json_t **out, json_t **meant, char **lines,
                          dcp_error *err) {
    *out = json_object();
    *meant = json_object();
    if (!*out || !*meant) return core_fail_memory(err, 0);
    int status = apply(*out, overrides, n, err);
    if (status != DCP_OK) return blame(LINE, status, err);
    json_t *checked = json_deep_copy(*out);
    if (!checked) return core_fail_memory(err, 0);
    config_findings found = {0};
    config_deepspeed_translate(checked, NULL, *meant, 1, &found);
    check_tree(checked, "", &found);
    status = config_findings_judge(&found, LINE, lines, err);
    config_findings_clear(&found);
    json_decref(checked);
    return status;
}

/* Refuses a file that describes a model instead of a training run. */
static int check_kind(const json_t *given, dcp_error *err) {
    if (json_object_get(given, "model") || !json_object_get(given, "model_type")) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "describes a model, not a training; name it in a file such as {\"model\": "
                     "\"config.json\", \"data\": {\"path\": \"corpus\"}}");
}

/* Returns true if the second assignment sets the first one's key, or an object that contains it. */
static bool replaces(const char *first, const char *second) {
    const size_t n = strcspn(second, "=");
    return strncmp(first, second, n) == 0 && (first[n] == '=' || first[n] == '.');
}

static void note_repeated(const config_overrides *line, config_findings *f) {
    for (int i = 0; i < line->n; i++)
        for (int j = i + 1; j < line->n; j++)
            if (replaces(line->at[i], line->at[j]) && strcmp(line->at[i], line->at[j]) != 0) {
                config_findings_add(f, CONFIG_REPEATED, "%.200s", line->at[i]);
                break;
            }
}

/* Translates DeepSpeed's keys and checks each key. */
static int check_keys(const char *path, json_t *given, const config_overrides *line,
                      const json_t *from_line, int world, char **lines, dcp_error *err) {
    config_findings found = {0};
    int status = blame(path, check_kind(given, err), err);
    if (status != DCP_OK) return status;
    config_deepspeed_translate(given, from_line, NULL, world, &found);
    check_tree(given, "", &found);
    check_missing(given, &found);
    note_repeated(line, &found);
    status = config_findings_judge(&found, path, lines, err);
    if (status == DCP_OK) {
        config_schema_note_idle(given, &found);
        *lines = config_findings_notes(&found, path);
    }
    config_findings_clear(&found);
    return status;
}

/* FNV-1a. */
static uint64_t checksum_of(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = text; c && *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return hash;
}

/* Makes the result from the file's tree, to which the overrides have been applied and whose keys
 * have been checked. The caller keeps both trees. */
static int finish(const char *path, const json_t *given, const json_t *from_line, config **out,
                  dcp_error *err) {
    json_t *tree = NULL, *model = NULL;
    int status = effective_tree(given, &tree, err);
    if (status != DCP_OK) return blame(path, status, err);
    const char *to_blame = config_json_at(from_line, "optimizer") ? LINE : path;
    status = check_optimizer(given, tree, err);
    if (status == DCP_OK) {
        to_blame = config_json_at(from_line, "data") ? LINE : path;
        status = check_sequence(tree, err);
    }
    if (status == DCP_OK) {
        to_blame = config_json_at(from_line, "model") ? LINE : path;
        status = resolve_model(json_object_get(tree, "model"), &model, err);
    }
    if (status != DCP_OK) {
        json_decref(tree);
        return blame(to_blame, status, err);
    }
    const bool by_line =
        config_json_at(from_line, "checkpoint") || config_json_at(from_line, "train_batch_size") ||
        config_json_at(from_line, "eval_every") || config_json_at(from_line, "fsdp") ||
        config_json_at(from_line, "train_micro_batch_size_per_gpu");
    char *text = json_dumps(tree, JSON_COMPACT | JSON_SORT_KEYS);
    const uint64_t checksum = checksum_of(text);
    free(text);
    status = assemble(tree, model, out, err);
    if (status == DCP_OK) (*out)->given = checksum;
    return blame(by_line ? LINE : path, status, err);
}

/* Applies the overrides to the file's tree. */
static int merge(json_t *given, char *const *overrides, int n, json_t *meant, dcp_error *err) {
    const int status = apply(given, overrides, n, err);
    if (status != DCP_OK) return blame(LINE, status, err);
    return json_object_update_recursive(given, meant) ? core_fail_memory(err, 0) : DCP_OK;
}

int config_load(const char *path, char *const *overrides, int n_overrides, int world, config **out,
                char **lines, dcp_error *err) {
    json_t *given, *from_line = NULL, *meant = NULL;
    *lines = NULL;
    int status = config_json_read(path, &given, err);
    if (status != DCP_OK) return status;
    status = read_overrides(overrides, n_overrides, &from_line, &meant, lines, err);
    if (status == DCP_OK) status = merge(given, overrides, n_overrides, meant, err);
    const config_overrides line = {overrides, n_overrides};
    if (status == DCP_OK) status = check_keys(path, given, &line, from_line, world, lines, err);
    if (status == DCP_OK) {
        status = finish(path, given, from_line, out, err);
        if (status != DCP_OK) {
            free(*lines);
            *lines = NULL;
        }
    }
    json_decref(meant);
    json_decref(from_line);
    json_decref(given);
    return status;
}

int config_resume_newest(config *c, dcp_error *err) {
    if (config_json_set(c->tree, "checkpoint.resume", json_string("auto")) != 0 ||
        config_json_set(c->tree, "checkpoint.overwrite", json_false()) != 0)
        return core_fail_memory(err, 0);
    fill_struct(c);
    c->restarted = true;
    return DCP_OK;
}

int config_take_over(config *c, dcp_error *err) {
    if (config_json_set(c->tree, "checkpoint.take_over", json_true()) != 0)
        return core_fail_memory(err, 0);
    fill_struct(c);
    return DCP_OK;
}

int config_pack(const config *c, char **text, dcp_error *err) {
    json_t *both = json_pack("{sOsOsbsI}", "tree", c->tree, "model", c->model, "restarted",
                             c->restarted, "given", (json_int_t)c->given);
    *text = both ? json_dumps(both, JSON_COMPACT) : NULL;
    json_decref(both);
    return *text ? DCP_OK : core_fail_memory(err, 0);
}

int config_unpack(const char *text, config **out, dcp_error *err) {
    json_t *both = json_loads(text, 0, NULL);
    json_t *tree = json_incref(json_object_get(both, "tree"));
    json_t *model = json_incref(json_object_get(both, "model"));
    const bool restarted = json_is_true(json_object_get(both, "restarted"));
    const json_int_t given = json_integer_value(json_object_get(both, "given"));
    json_decref(both);
    if (tree && model) {
        const int status = assemble(tree, model, out, err);
        if (status != DCP_OK) return status;
        (*out)->restarted = restarted;
        (*out)->given = (uint64_t)given;
        return DCP_OK;
    }
    json_decref(tree);
    json_decref(model);
    return core_fail_memory(err, strlen(text));
}
