/* Meshes: parsing, the rules of tensor parallelism, boxes. */
#include "common/rank_mesh.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/arguments.h"
#include "programs/json_read.h"
#include "programs/program.h"

static const char *const axis_names[RANK_MESH_AXES] = {"fsdp", "tp", "replicate"};

void rank_mesh_flat(int world, rank_mesh *out) {
    *out = (rank_mesh){.world = world,
                       .size = {world, 1, 1},
                       .order = {RANK_MESH_FSDP, RANK_MESH_TP, RANK_MESH_REPLICATE}};
}

static int find_axis(const char *name, rank_mesh_axis *out) {
    for (int a = 0; a < RANK_MESH_AXES; a++)
        if (strcmp(name, axis_names[a]) == 0) {
            *out = (rank_mesh_axis)a;
            return 0;
        }
    return program_refuse("--mesh: '%s' is not an axis; the axes are fsdp, tp and replicate", name);
}

/* Parses one "axis=size". */
static int parse_axis(char *text, int n, rank_mesh *m) {
    uint64_t size;
    rank_mesh_axis axis = RANK_MESH_FSDP;
    char *equals = strchr(text, '=');
    if (!equals) return program_refuse("--mesh: '%s' is not axis=size", text);
    *equals = 0;
    if (find_axis(text, &axis)) return PROGRAM_USAGE;
    if (m->size[axis]) return program_refuse("--mesh: the axis %s is given twice", text);
    if (program_count_parse("--mesh", equals + 1, 1, RANK_MESH_MAX_WORLD, &size))
        return PROGRAM_USAGE;
    if (size * (uint64_t)m->world > RANK_MESH_MAX_WORLD)
        return program_refuse("--mesh: more than %d ranks", RANK_MESH_MAX_WORLD);
    m->size[axis] = (int)size;
    m->order[n] = axis;
    m->world *= (int)size;
    return 0;
}

int rank_mesh_parse(const char *text, rank_mesh *out) {
    rank_mesh m = {.world = 1};
    int n = 0, status = 0;
    char *copy = strdup(text), *save = NULL;
    if (!copy) return program_no_memory();
    for (char *axis = strtok_r(copy, ",", &save); axis && !status;
         axis = strtok_r(NULL, ",", &save))
        status = parse_axis(axis, n++, &m);
    free(copy);
    if (!status && n == 0) status = program_refuse("--mesh: '%s' names no axis", text);
    for (int a = 0; a < RANK_MESH_AXES && !status; a++)
        if (!m.size[a]) {
            m.size[a] = 1;
            m.order[n++] = (rank_mesh_axis)a;
        }
    if (!status) *out = m;
    return status;
}

const char *rank_mesh_print(const rank_mesh *m, char text[RANK_MESH_TEXT]) {
    int used = 0;
    for (int n = 0; n < RANK_MESH_AXES; n++)
        if (m->size[m->order[n]] > 1 || (n == 0 && m->world == 1))
            used += snprintf(text + used, (size_t)(RANK_MESH_TEXT - used), "%s%s=%d",
                             used ? "," : "", axis_names[m->order[n]], m->size[m->order[n]]);
    return text;
}

/* Returns true if the text is a dimension that a rule can have: 0 to 7, or "none". */
static bool is_dim(const char *text) {
    return strcmp(text, "none") == 0 ||
           (text[0] >= '0' && text[0] < '0' + DCP_MAX_DIMS && !text[1]);
}

int rank_mesh_set_rules(rank_mesh *m, const char *text) {
    char *save = NULL, *copy = strdup(text), *rules = calloc(1, strlen(text) + 3), *to = rules;
    int status = copy && rules ? 0 : program_no_memory();
    for (char *rule = status ? NULL : strtok_r(copy, ",", &save); rule && !status;
         rule = strtok_r(NULL, ",", &save)) {
        char *equals = strrchr(rule, '=');
        if (!equals || equals == rule || !is_dim(equals + 1)) {
            status = program_refuse("--tp-rule: '%s' is not GLOB=DIMENSION or GLOB=none", rule);
            break;
        }
        *equals = 0;
        to = stpcpy(to, rule) + 1;
        to = stpcpy(to, equals + 1) + 1;
    }
    if (!status && to == rules) status = program_refuse("--tp-rule: '%s' is no rule", text);
    free(copy);
    if (status)
        free(rules);
    else
        m->rules = rules;
    return status;
}

void rank_mesh_free(rank_mesh *m) {
    free(m->rules);
    m->rules = NULL;
}

int rank_mesh_from_options(const char *world, const char *mesh, const char *rules, rank_mesh *out) {
    uint64_t ranks = 0;
    if (world && program_count_parse("--world", world, 1, RANK_MESH_MAX_WORLD, &ranks))
        return PROGRAM_USAGE;
    rank_mesh_flat((int)ranks, out);
    if (mesh && rank_mesh_parse(mesh, out)) return PROGRAM_USAGE;
    if (ranks && (uint64_t)out->world != ranks)
        return program_refuse("--world %" PRIu64 " contradicts --mesh %s, which has %d ranks",
                              ranks, mesh, out->world);
    return rules ? rank_mesh_set_rules(out, rules) : 0;
}

/* Returns the part of a tensor's path that follows its section, such as /model/ or
 * /optimizer/exp_avg/. */
static const char *name_of(const char *path) {
    const char *name = strchr(path + 1, '/') + 1;
    const char *inner = strncmp(path, "/optimizer/", 11) ? NULL : strchr(name, '/');
    return inner ? inner + 1 : name;
}

/* Returns the largest number of dimensions of the tensors that the glob matches; -1 if it matches
 * none. */
static int most_dims(const char *glob, const dcp_checkpoint *ckpt) {
    int most = -1;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
        if (strncmp(t->path, "/files/", 7) && fnmatch(glob, name_of(t->path), 0) == 0 &&
            (int)t->ndim > most)
            most = (int)t->ndim;
    }
    return most;
}

int rank_mesh_check_rules(const rank_mesh *m, const dcp_checkpoint *ckpt) {
    for (const char *rule = m->rules; rule && *rule;) {
        const char *value = rule + strlen(rule) + 1;
        int dims = most_dims(rule, ckpt);
        if (dims < 0)
            return program_refuse(
                "--tp-rule: no tensor's name matches '%s'; dcp-inspect show lists the names", rule);
        if (strcmp(value, "none") && value[0] - '0' >= dims)
            return program_refuse("--tp-rule: '%s=%s': the tensors that match have no dimension "
                                  "%s; dimensions are numbered from 0",
                                  rule, value, value);
        rule = value + strlen(value) + 1;
    }
    return 0;
}

enum { NO_HEADS, QUERY_HEADS, KEY_HEADS }; /* which heads lie along the dimension that is cut */

/* A row of the built-in rules. */
typedef struct tp_rule {
    const char *glob;
    int dim, heads, parts;
} tp_rule;

/* Returns the first built-in rule that matches, or NULL. The weight of a linear layer is [outputs,
 * inputs]; the weight of GPT-2's Conv1D is [inputs, outputs]. If a weight is cut by its outputs,
 * its bias is cut in the same way; if it is cut by its inputs, its bias stays whole. */
static const tp_rule *built_in(const char *name) {
    static const tp_rule rules[] = {
        {"*attn.c_attn.weight", 1, QUERY_HEADS, RANK_MESH_QKV},
        {"*mlp.c_fc.weight", 1, NO_HEADS, 1},
        {"*attn.c_attn.bias", 0, QUERY_HEADS, RANK_MESH_QKV},
        {"*mlp.c_fc.bias", 0, NO_HEADS, 1},
        {"*attn.c_proj.weight", 0, QUERY_HEADS, 1},
        {"*mlp.c_proj.weight", 0, NO_HEADS, 1},
        {"*wte.weight", 0, NO_HEADS, 1},
        {"*q_proj.weight", 0, QUERY_HEADS, 1},
        {"*q_proj.bias", 0, QUERY_HEADS, 1},
        {"*[kv]_proj.weight", 0, KEY_HEADS, 1},
        {"*[kv]_proj.bias", 0, KEY_HEADS, 1},
        {"*gate_proj.weight", 0, NO_HEADS, 1},
        {"*gate_proj.bias", 0, NO_HEADS, 1},
        {"*up_proj.weight", 0, NO_HEADS, 1},
        {"*up_proj.bias", 0, NO_HEADS, 1},
        {"*o_proj.weight", 1, QUERY_HEADS, 1},
        {"*down_proj.weight", 1, NO_HEADS, 1},
        {"*embed_tokens.weight", 0, NO_HEADS, 1},
        {"*lm_head.weight", 0, NO_HEADS, 1},
        {"*lm_head.bias", 0, NO_HEADS, 1},
        {"*attention.query.weight", 0, QUERY_HEADS, 1},
        {"*attention.query.bias", 0, QUERY_HEADS, 1},
        {"*attention.key.weight", 0, QUERY_HEADS, 1},
        {"*attention.key.bias", 0, QUERY_HEADS, 1},
        {"*attention.value.weight", 0, QUERY_HEADS, 1},
        {"*attention.value.bias", 0, QUERY_HEADS, 1},
        {"*intermediate.dense.weight", 0, NO_HEADS, 1},
        {"*intermediate.dense.bias", 0, NO_HEADS, 1},
        {"*attention.output.dense.weight", 1, QUERY_HEADS, 1},
        {"*output.dense.weight", 1, NO_HEADS, 1},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (fnmatch(rules[i].glob, name, 0) == 0) return &rules[i];
    return NULL;
}

/* Returns the rule that cuts the tensor, or NULL if no rule does. A rule that the caller gave is
 * stored in *own. */
static const tp_rule *rule_of(const rank_mesh *m, const dcp_tensor *tensor, tp_rule *own) {
    const char *name = name_of(tensor->path);
    if (strncmp(tensor->path, "/files/", 7) == 0) return NULL;
    for (const char *rule = m->rules; rule && *rule; rule += strlen(rule) + 1) {
        const char *value = rule + strlen(rule) + 1;
        if (fnmatch(rule, name, 0) == 0) {
            *own = (tp_rule){rule, value[0] - '0', NO_HEADS, 1};
            return strcmp(value, "none") && own->dim < (int)tensor->ndim ? own : NULL;
        }
        rule = value;
    }
    const tp_rule *found = built_in(name);
    return found && found->dim < (int)tensor->ndim ? found : NULL;
}

rank_mesh_cut rank_mesh_tp_cut(const rank_mesh *m, const dcp_tensor *tensor) {
    tp_rule own;
    const tp_rule *rule = m->size[RANK_MESH_TP] > 1 ? rule_of(m, tensor, &own) : NULL;
    if (!rule) return (rank_mesh_cut){-1, 1};
    return (rank_mesh_cut){rule->dim,
                           tensor->shape[rule->dim] % (uint64_t)rule->parts ? 1 : rule->parts};
}

/* Returns the value, in the model's configuration, of the first of `names` that exists there; 0 if
 * none of them exists. */
static json_int_t model_number(const json_t *meta, const char *const *names) {
    const json_t *model = json_object_get(meta, "model"), *value = NULL;
    for (; *names && !value; names++) value = json_object_get(model, *names);
    return json_integer_value(value);
}

int rank_mesh_check_heads(const rank_mesh *m, const dcp_checkpoint *ckpt) {
    static const char *const queries[] = {"num_attention_heads", "n_head", NULL};
    static const char *const keys[] = {"num_key_value_heads", "num_attention_heads", NULL};
    int tp = m->size[RANK_MESH_TP], status = 0;
    json_t *meta =
        tp > 1 ? core_json_read(dcp_checkpoint_json(ckpt), strlen(dcp_checkpoint_json(ckpt)), NULL)
               : NULL;
    const json_int_t heads[] = {
        [QUERY_HEADS] = model_number(meta, queries), [KEY_HEADS] = model_number(meta, keys)};
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt) && meta && !status; i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
        tp_rule own;
        const tp_rule *rule = rule_of(m, t, &own);
        if (rule && heads[rule->heads] % tp)
            status =
                program_refuse("--mesh: tp=%d cuts through a head: %s has %lld %sheads; "
                               "choose a tp that divides their number, or leave such tensors whole "
                               "with --tp-rule '%s=none'",
                               tp, t->path, (long long)heads[rule->heads],
                               rule->heads == KEY_HEADS ? "key and value " : "", rule->glob);
    }
    json_decref(meta);
    return status;
}

/* Returns part `i` of n rows that are cut into `size` parts, as by torch.chunk. */
static dcp_box cut_rows(uint64_t n, int i, int size) {
    const dcp_tensor rows = {.ndim = 1, .shape = {n}};
    return dcp_box_chunk(&rows, i, size);
}

/* Finds the rank's position on each axis. */
static void find_place(const rank_mesh *m, int rank, int at[RANK_MESH_AXES]) {
    for (int n = RANK_MESH_AXES; n-- > 0; rank /= m->size[m->order[n]])
        at[m->order[n]] = rank % m->size[m->order[n]];
}

/* Stores the rank's boxes, and returns their number. In each of the tensor's parts, tp assigns the
 * range [start, start + rows) of cut.dim to the rank. If cut.dim is 0, fsdp then cuts the
 * concatenation of these ranges. */
static int cut_parts(const dcp_tensor *tensor, rank_mesh_cut cut, const int at[RANK_MESH_AXES],
                     const rank_mesh *m, dcp_box *out) {
    int n = 0, dim = cut.dim < 0 ? 0 : cut.dim, tp = cut.dim < 0 ? 1 : m->size[RANK_MESH_TP];
    uint64_t part = tensor->shape[dim] / (uint64_t)cut.parts;
    const dcp_box own = cut_rows(part, tp > 1 ? at[RANK_MESH_TP] : 0, tp);
    uint64_t start = own.start[0], rows = own.count[0];
    const dcp_box cut_by_fsdp = cut_rows(dim ? tensor->shape[0] : rows * (uint64_t)cut.parts,
                                         at[RANK_MESH_FSDP], m->size[RANK_MESH_FSDP]);
    uint64_t low = cut_by_fsdp.start[0], high = low + cut_by_fsdp.count[0];
    for (uint64_t p = 0; p < (uint64_t)cut.parts; p++) {
        uint64_t first = p * rows, from = dim || low < first ? first : low,
                 to = dim || high > first + rows ? first + rows : high;
        if (from >= to) continue;
        dcp_box *box = &out[n++];
        *box = dcp_box_whole(tensor);
        box->start[dim] = p * part + start + (from - first);
        box->count[dim] = to - from;
        if (dim) box->start[0] = low;
        if (dim) box->count[0] = high - low;
    }
    return n;
}

int rank_mesh_boxes(const rank_mesh *m, const dcp_tensor *tensor, rank_mesh_cut cut, int rank,
                    dcp_box out[RANK_MESH_QKV]) {
    int at[RANK_MESH_AXES], n = 1, kept = 0;
    find_place(m, rank, at);
    if (tensor->ndim == 0)
        out[0] = dcp_box_chunk(tensor, at[RANK_MESH_FSDP], m->size[RANK_MESH_FSDP]);
    else
        n = cut_parts(tensor, cut, at, m, out);
    for (int i = 0; i < n; i++)
        if (dcp_box_elems(&out[i], tensor->ndim)) out[kept++] = out[i];
    return kept;
}

bool rank_mesh_keeps(const rank_mesh *m, rank_mesh_cut cut, int rank) {
    int at[RANK_MESH_AXES];
    find_place(m, rank, at);
    return at[RANK_MESH_REPLICATE] == 0 && (at[RANK_MESH_TP] == 0 || cut.dim >= 0);
}
