/* Selecting is local and depends only on options and state, which all ranks agree on; so all ranks
 * select the same tensors. */
#include "load/select.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/strides.h"
#include "move/engine.h"

typedef char path_text[DCP_MAX_PATH + 1];

static int bad_rename(const dcp_rename *pair, const char *why, dcp_error *err) {
    return core_fail(err, DCP_ERR_ARG, "renames: {\"%s\", \"%s\"}: %s",
                     pair->from ? pair->from : "(null)", pair->to ? pair->to : "(null)", why);
}

static int stars(const char *pattern) {
    int n = 0;
    for (; *pattern; pattern++) n += *pattern == '*';
    return n;
}

/* Checks that the pairs are well-formed. The message of DCP_ERR_ARG names the first pair that
 * isn't. */
static int check_renames(const dcp_rename *pairs, size_t n, dcp_error *err) {
    for (size_t i = 0; i < n; i++) {
        const dcp_rename *pair = &pairs[i];
        if (!pair->from || !pair->to) return bad_rename(pair, "both names are required", err);
        if (!strchr("/*", *pair->from))
            return bad_rename(pair, "a tensor's name begins with /", err);
        if (stars(pair->from) > 1 || stars(pair->to) > 1)
            return bad_rename(pair, "there can be at most one * on each side", err);
        if (stars(pair->from) != stars(pair->to))
            return bad_rename(pair, "a * has to be on both sides or on none", err);
    }
    return DCP_OK;
}

/* Returns true if `path` is `pattern` with some text in place of its star; *star is where that text
 * begins. */
static bool match_pattern(const char *pattern, const char *path, const char **star,
                          size_t *star_bytes) {
    const char *at = strchr(pattern, '*');
    *star = path;
    *star_bytes = 0;
    if (!at) return !strcmp(pattern, path);
    size_t before = (size_t)(at - pattern), after = strlen(at + 1), length = strlen(path);
    if (length < before + after || memcmp(path, pattern, before) ||
        memcmp(path + length - after, at + 1, after))
        return false;
    *star = path + before;
    *star_bytes = length - before - after;
    return true;
}

/* Writes `pattern` with the text `star` in place of its *. Returns false if the result is longer
 * than a path may be. */
static bool fill_pattern(const char *pattern, const char *star, size_t star_bytes, path_text out) {
    size_t before = strcspn(pattern, "*"), length = strlen(pattern);
    size_t after = before < length ? length - before - 1 : 0;
    if (before + star_bytes + after > DCP_MAX_PATH) return false;
    memcpy(out, pattern, before);
    if (before < length)
        memcpy(out + before, star, star_bytes);
    else
        star_bytes = 0;
    memcpy(out + before + star_bytes, pattern + length - after, after);
    out[before + star_bytes + after] = 0;
    return true;
}

/* Finds the name that the state's tensor `path` has in the checkpoint. Returns DCP_ERR_ARG if no
 * tensor can have that name. */
static int rename_to_stored(const dcp_rename *pairs, size_t n, const char *path, path_text out,
                            dcp_error *err) {
    const char *star, *why = "it is longer than 1,024 bytes";
    size_t star_bytes;
    for (size_t i = 0; i < n; i++) {
        if (!match_pattern(pairs[i].from, path, &star, &star_bytes)) continue;
        if (fill_pattern(pairs[i].to, star, star_bytes, out) && core_path_valid(out, &why))
            return DCP_OK;
        return core_fail_tensor(
            core_fail(err, DCP_ERR_ARG,
                      "renames: {\"%s\", \"%s\"}: tensor %s gets no valid name: %s", pairs[i].from,
                      pairs[i].to, path, why),
            path, err);
    }
    strcpy(out, path);
    return DCP_OK;
}

/* Finds the name that this pair turns into `stored`. Returns false if there is none. */
static bool rename_from_stored(const dcp_rename *pair, const char *stored, path_text out) {
    const char *star;
    size_t star_bytes;
    return match_pattern(pair->to, stored, &star, &star_bytes) &&
           fill_pattern(pair->from, star, star_bytes, out);
}

static uint64_t hash_text(uint64_t raw, const char *text) {
    return text ? core_crc64_raw(raw, text, strlen(text) + 1) : core_crc64_shift(raw, 7);
}

static uint64_t hash_globs(const dcp_load_options *o) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; o->only && i < o->n_only; i++) raw = hash_text(raw, o->only[i]);
    return raw;
}

static uint64_t hash_renames(const dcp_load_options *o) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; o->renames && i < o->n_renames; i++)
        raw = hash_text(hash_text(raw, o->renames[i].from), o->renames[i].to);
    return raw;
}

int load_select_agree(dcp_comm *comm, int status, const dcp_load_options *o, bool in_flight,
                      comm_vote *v, dcp_error *err) {
    comm_vote_same(v, "the call: 0 is dcp_load, 1 dcp_load_async", (uint64_t)in_flight);
    comm_vote_same_hash(v, "the load option only", hash_globs(o));
    comm_vote_same_hash(v, "the load option renames", hash_renames(o));
    comm_vote_same(v, "the load option cast", o->cast != 0);
    comm_vote_same(v, "the load option missing_keys", o->missing_keys);
    comm_vote_same(v, "the load option unexpected_keys", o->unexpected_keys);
    comm_vote_same(v, "the load option engine", o->engine);
    return comm_vote_run(comm, v, status, err);
}

static int check_options(const dcp_load_options *o, dcp_error *err) {
    if ((o->n_only && !o->only) || (o->n_renames && !o->renames))
        return core_fail(err, DCP_ERR_ARG,
                         "dcp_load: only or renames is NULL, but n_only or n_renames is not 0");
    for (size_t i = 0; i < o->n_only; i++)
        if (!o->only[i]) return core_fail(err, DCP_ERR_ARG, "dcp_load: only[%zu] is NULL", i);
    int status = check_renames(o->renames, o->n_renames, err);
    if (status) return status;
    if (core_option_check_choice("missing_keys", (int)o->missing_keys, DCP_MISSING_KEYS_KEEP,
                                 err) ||
        core_option_check_choice("unexpected_keys", (int)o->unexpected_keys,
                                 DCP_UNEXPECTED_KEYS_REFUSE, err))
        return DCP_ERR_ARG;
    return move_engine_check(o->engine, err);
}

/* Returns true if any glob matches, or if there are no globs. With `matched`, tries all globs and
 * marks those that match; otherwise stops at the first match. */
static bool glob(const dcp_load_options *o, const char *path, unsigned char *matched) {
    bool any = !o->n_only;
    for (size_t i = 0; i < o->n_only && (!any || matched); i++)
        if (!fnmatch(o->only[i], path, 0)) {
            any = true;
            if (matched) matched[i] = 1;
        }
    return any;
}

static int take_matching(const dcp_load_options *o, load_selection *s, dcp_error *err) {
    unsigned char *matched = calloc(o->n_only + 1, 1);
    if (!matched) return core_fail_memory(err, o->n_only);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (glob(o, s->wanted[i]->tensor.path, matched)) s->wanted[n++] = s->wanted[i];
    s->n = n;
    int status = DCP_OK;
    for (size_t i = 0; i < o->n_only && !status; i++)
        if (!matched[i])
            status = core_fail(err, DCP_ERR_NOT_FOUND,
                               "only: no tensor of the state matches the glob %s", o->only[i]);
    free(matched);
    return status;
}

static int describe_mismatch(const dcp_checkpoint *ckpt, int status, const dcp_tensor *want,
                             const dcp_tensor *have, const char *hint, dcp_error *err) {
    char wanted[200], stored[200];
    core_shape_print(want->ndim, want->shape, wanted, sizeof wanted);
    core_shape_print(have->ndim, have->shape, stored, sizeof stored);
    int renamed = strcmp(want->path, have->path);
    return core_fail_tensor(
        core_fail_at(err, status, ckpt->path,
                     "tensor %s%s%s is %s %s in the checkpoint, but %s %s is requested%s",
                     want->path, renamed ? " from " : "", renamed ? have->path : "",
                     dcp_dtype_name(have->dtype), stored, dcp_dtype_name(want->dtype), wanted,
                     hint),
        want->path, err);
}

static int check_types(const dcp_checkpoint *ckpt, const dcp_tensor *want, const dcp_tensor *have,
                       int cast, dcp_error *err) {
    dcp_tensor as_stored = *want;
    as_stored.dtype = have->dtype;
    if (core_tensor_same(want, have)) return DCP_OK;
    if (!core_tensor_same(&as_stored, have))
        return describe_mismatch(ckpt, DCP_ERR_MISMATCH, want, have, "", err);
    if (!cast)
        return describe_mismatch(ckpt, DCP_ERR_MISMATCH, want, have,
                                 ": types are converted only with the load option cast", err);
    if (dcp_convert(have->dtype, NULL, want->dtype, NULL, 0))
        return describe_mismatch(ckpt, DCP_ERR_UNSUPPORTED, want, have,
                                 ": there is no cast between these types", err);
    return DCP_OK;
}

/* Finds the stored tensor `name`. Both lists ascend by name, so it is usually the one after
 * `last`. */
static const reader_tensor *find_after(const dcp_checkpoint *ckpt, const reader_tensor *last,
                                       const char *name) {
    const reader_tensor *next = last ? last + 1 : ckpt->tensors;
    if (next < ckpt->tensors + ckpt->n_tensors && !strcmp(next->tensor.path, name)) return next;
    return reader_checkpoint_lookup(ckpt, name);
}

static int fail_overlap(const dcp_tensor *t, const dcp_box *box, dcp_error *err) {
    char text[256];
    core_box_print(core_box_dims(t->ndim), box, text, sizeof text);
    return core_fail_tensor(core_fail(err, DCP_ERR_ARG,
                                      "tensor %s: with the strides of box %s, elements overlap in "
                                      "memory, so the tensor can be saved, but not loaded; each "
                                      "stride must reach beyond the elements of all shorter "
                                      "strides",
                                      t->path, text),
                            t->path, err);
}

/* A source has no memory to load into, and elements that share bytes can't all be loaded. */
static int check_boxes(const state_tensor *t, dcp_error *err) {
    for (size_t k = 0; k < t->n_boxes; k++) {
        if (t->boxes[k].source)
            return core_fail_tensor(core_fail(err, DCP_ERR_ARG,
                                              "tensor %s: its box has a source instead of memory, "
                                              "so nothing can be loaded into it",
                                              t->tensor.path),
                                    t->tensor.path, err);
        if (t->boxes[k].strides && t->boxes[k].strides->overlaps)
            return fail_overlap(&t->tensor, &t->boxes[k].box, err);
    }
    return DCP_OK;
}

static int find_stored(const dcp_checkpoint *ckpt, const dcp_load_options *o, load_selection *s,
                       dcp_error *err) {
    const reader_tensor *last = NULL;
    size_t missing = 0, first = 0;
    path_text name;
    for (size_t i = 0; i < s->n; i++) {
        core_state_prefetch(s->wanted, s->n, i);
        int status = check_boxes(s->wanted[i], err);
        const char *path = s->wanted[i]->tensor.path;
        if (!status && o->n_renames)
            status = rename_to_stored(o->renames, o->n_renames, path, name, err);
        if (status) return status;
        s->stored[i] = find_after(ckpt, last, o->n_renames ? name : path);
        if (!s->stored[i]) {
            if (!missing++) first = i;
            continue;
        }
        last = s->stored[i];
        status = check_types(ckpt, &s->wanted[i]->tensor, &last->tensor, o->cast, err);
        if (status) return status;
    }
    if (!missing || o->missing_keys == DCP_MISSING_KEYS_KEEP) return DCP_OK;
    rename_to_stored(o->renames, o->n_renames, s->wanted[first]->tensor.path, name, NULL);
    int renamed = strcmp(name, s->wanted[first]->tensor.path);
    return core_fail_tensor(
        core_fail_at(err, DCP_ERR_NOT_FOUND, ckpt->path,
                     "tensor %s is not in the checkpoint%s%s (%zu of %zu are missing)%s",
                     s->wanted[first]->tensor.path, renamed ? " under " : "", renamed ? name : "",
                     missing, s->n, renamed ? "" : "; if it has another name there, rename it"),
        s->wanted[first]->tensor.path, err);
}

/* Returns true if `path`, a name in the state, is selected and would be loaded from `stored`. */
static bool would_load(const dcp_load_options *o, const char *path, const char *stored) {
    path_text name;
    return !rename_to_stored(o->renames, o->n_renames, path, name, NULL) && !strcmp(name, stored) &&
           glob(o, path, NULL);
}

/* Returns true if a tensor of a state could have a name under which the stored tensor would be
 * loaded. Files that an import has stored for an export never count. */
static bool counts(const dcp_load_options *o, const char *stored) {
    path_text name;
    if (core_section_of(stored) == CORE_SECTION_FILES) return false;
    if (!o->n_only || would_load(o, stored, stored)) return true;
    for (size_t i = 0; i < o->n_renames; i++)
        if (rename_from_stored(&o->renames[i], stored, name) && would_load(o, name, stored))
            return true;
    return false;
}

static int check_unexpected(const dcp_checkpoint *ckpt, const dcp_load_options *o,
                            const load_selection *s, dcp_error *err) {
    if (o->unexpected_keys == DCP_UNEXPECTED_KEYS_IGNORE) return DCP_OK;
    unsigned char *used = calloc(ckpt->n_tensors + 1, 1);
    size_t n = 0, first = 0;
    if (!used) return core_fail_memory(err, ckpt->n_tensors);
    for (size_t i = 0; i < s->n; i++)
        if (s->stored[i]) used[s->stored[i] - ckpt->tensors] = 1;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (!used[i] && counts(o, ckpt->tensors[i].tensor.path) && !n++) first = i;
    free(used);
    if (!n) return DCP_OK;
    return core_fail_tensor(
        core_fail_at(err, DCP_ERR_MISMATCH, ckpt->path,
                     "tensor %s is in the checkpoint, and nothing of the state is loaded from it "
                     "(%zu such tensors): add it to the state, name what is to be loaded (`only`), "
                     "or allow such tensors (`strict` = 0, strict=False)",
                     ckpt->tensors[first].tensor.path, n),
        ckpt->tensors[first].tensor.path, err);
}

int load_select_tensors(const dcp_checkpoint *ckpt, const dcp_state *state,
                        const dcp_load_options *options, load_selection *out, dcp_error *err) {
    if (!state) return core_fail(err, DCP_ERR_ARG, "dcp_load: a state is needed");
    int status = check_options(options, err);
    if (status) return status;
    out->n = dcp_state_tensors(state);
    out->wanted = core_state_sorted(state);
    out->stored = calloc(out->n + 1, sizeof *out->stored);
    if (!out->wanted || !out->stored) return core_fail_memory(err, out->n * 8);
    status = take_matching(options, out, err);
    if (!status) status = find_stored(ckpt, options, out, err);
    if (!status) status = check_unexpected(ckpt, options, out, err);
    return status;
}

void load_select_drop_missing(load_selection *s, const dcp_load_options *options) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!s->stored[i]) {
            if (options->on_missing) options->on_missing(options->ctx, s->wanted[i]->tensor.path);
            continue;
        }
        s->wanted[n] = s->wanted[i];
        s->stored[n++] = s->stored[i];
    }
    s->n = n;
}

void load_select_free(load_selection *s) {
    free(s->wanted);
    free(s->stored);
    *s = (load_selection){0};
}
