/* The rows of a shard are the kept boxes that belong to it, ascending by path. */
#include "save/plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/system.h"
#include "move/engine.h"
#include "move/window_cache.h"
#include "plan/agreement.h"
#include "save/request.h"

static void save_file_free(save_file *file) {
    free(file->rows);
    free(file->paths);
    h5_skeleton_free(&file->skeleton);
    *file = (save_file){0};
}

typedef struct shard_box {
    size_t tensor; /* index in the request's sorted tensors */
    dcp_box box;
    size_t source; /* index in the plan; SAVE_NO_SOURCE: nothing to write */
    char *path;    /* the dataset's path, in `paths` */
} shard_box;

/* Returns an upper bound on the number of rows of shard `number`, and adds an upper bound on the
 * size of their paths to *bytes. */
static size_t measure_boxes(const save_request *r, const plan_boxes *held, int number,
                            size_t *bytes) {
    size_t n = 0;
    for (size_t i = 0; i < held->n; i++)
        if (held->boxes[i].rank == number) {
            *bytes += strlen(r->sorted[held->boxes[i].tensor]->tensor.path) + 24;
            n++;
        }
    for (size_t i = 0; i < r->n && number == 0; i++) {
        *bytes += strlen(r->sorted[i]->tensor.path) + 24;
        n++;
    }
    return n;
}

static int order_by_path(const void *a, const void *b) {
    return strcmp(((const shard_box *)a)->path, ((const shard_box *)b)->path);
}

/* Returns true if a component of the path ends in @digits. A dataset or HDF5 group of that name
 * could conflict with a piece's name. */
static bool is_like_a_piece(const char *path) {
    for (const char *at = strchr(path, '@'); at; at = strchr(at + 1, '@')) {
        size_t digits = strspn(at + 1, "0123456789");
        if (digits && (!at[1 + digits] || at[1 + digits] == '/')) return true;
    }
    return false;
}

/* Makes the name of the dataset that holds box k of a tensor in this shard: the tensor's path for
 * the first box, path@1, path@2 for further ones. */
static int name_dataset(const char *path, size_t k, char *out, size_t *length, dcp_error *err) {
    if (is_like_a_piece(path))
        return core_fail_tensor(
            core_fail(err, DCP_ERR_UNSUPPORTED,
                      "tensor %s: layout sharded reserves names that end in @<digits> for the "
                      "pieces of a tensor: rename it",
                      path),
            path, err);
    if (k && strlen(path) + 12 > DCP_MAX_PATH)
        return core_fail_tensor(
            core_fail(err, DCP_ERR_UNSUPPORTED,
                      "tensor %.80s...: layout sharded needs 12 bytes after its name for the "
                      "number of a piece: shorten it",
                      path),
            path, err);
    *length = (size_t)(k ? sprintf(out, "%s@%zu", path, k) : sprintf(out, "%s", path));
    return DCP_OK;
}

/* Lists the boxes that the shard keeps, ascending by path: *n_out boxes in out[], their paths in
 * `paths`. Both arrays have the sizes that measure_boxes returned. Tensors without elements, which
 * no rank holds, are in shard 0. DCP_ERR_UNSUPPORTED: a tensor's name could conflict with a piece's
 * name. */
static int collect_boxes(const save_request *r, const plan_boxes *held, int number, shard_box *out,
                         size_t *n_out, char *paths, dcp_error *err) {
    size_t n = 0, k = 0;
    for (size_t i = 0; i < held->n; i++) {
        const plan_box *b = &held->boxes[i];
        if (b->keeper && b->rank == number) out[n++] = (shard_box){b->tensor, b->box->box, i, NULL};
    }
    for (size_t i = 0; i < r->n && number == 0; i++)
        if (!r->sorted[i]->bytes)
            out[n++] = (shard_box){i, dcp_box_whole(&r->sorted[i]->tensor), SAVE_NO_SOURCE, NULL};
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        k = i && out[i - 1].tensor == out[i].tensor ? k + 1 : 0;
        out[i].path = paths;
        int status = name_dataset(r->sorted[out[i].tensor]->tensor.path, k, paths, &length, err);
        if (status) return status;
        paths += length + 1;
    }
    qsort(out, n, sizeof *out, order_by_path);
    *n_out = n;
    return DCP_OK;
}

static void fill_rows(const save_request *r, const shard_box *boxes, size_t n, save_shard *s) {
    for (size_t i = 0; i < n; i++) {
        const dcp_tensor *t = &r->sorted[boxes[i].tensor]->tensor;
        const dcp_box *box = &boxes[i].box;
        s->file.rows[i] =
            (format_row){.tensor = *t,
                         .box = &s->boxes[i],
                         .bytes = dcp_box_elems(box, t->ndim) * dcp_dtype_bytes(t->dtype),
                         .first_block = s->file.blocks};
        s->file.rows[i].tensor.path = boxes[i].path;
        s->boxes[i] = *box;
        s->tensors[i] = boxes[i].tensor;
        s->sources[i] = boxes[i].source;
        s->file.blocks += format_index_blocks(s->file.rows[i].bytes);
    }
    s->file.n = n;
    s->file.layout = DCP_LAYOUT_SHARDED;
}

static int lay_out_shard(const save_request *r, const plan_boxes *held, uint64_t meta_bytes,
                         const h5_poll *poll, save_shard *s, dcp_error *err) {
    size_t bytes = 1, n = measure_boxes(r, held, s->number, &bytes);
    shard_box *boxes = calloc(n + 1, sizeof *boxes);
    s->file.rows = calloc(n + 1, sizeof *s->file.rows);
    s->file.paths = malloc(bytes);
    s->boxes = calloc(n + 1, sizeof *s->boxes);
    s->tensors = calloc(n + 1, sizeof *s->tensors);
    s->sources = calloc(n + 1, sizeof *s->sources);
    int status = DCP_OK;
    if (!boxes || !s->file.rows || !s->file.paths || !s->boxes || !s->tensors || !s->sources)
        status = core_fail_memory(err, n * sizeof *s->file.rows);
    if (!status) status = collect_boxes(r, held, s->number, boxes, &n, s->file.paths, err);
    if (!status) fill_rows(r, boxes, n, s);
    if (!status)
        status = h5_skeleton_build(s->file.rows, n, DCP_LAYOUT_SHARDED, meta_bytes, poll,
                                   &s->file.skeleton, err);
    free(boxes);
    return status;
}

static int check_owners(const save_request *r, int rank, int size, const plan_boxes *held,
                        dcp_error *err) {
    for (size_t i = 0; i < held->n; i++) {
        int owner = held->boxes[i].rank;
        if (owner >= r->shards || owner % size != rank)
            return core_fail_tensor(
                core_fail(err, DCP_ERR_ARG,
                          "tensor %s: its box is for shard %d, which rank %d can't write: of the "
                          "%d shards, rank r must write those whose number %% %d is r",
                          r->sorted[held->boxes[i].tensor]->tensor.path, owner, rank, r->shards,
                          size),
                r->sorted[held->boxes[i].tensor]->tensor.path, err);
    }
    return DCP_OK;
}

/* Lays out the shards that rank `rank` of `size` ranks writes from its own `boxes`. Not collective.
 * DCP_ERR_ARG: a box belongs to a shard that another rank writes. DCP_ERR_UNSUPPORTED: a tensor's
 * name could conflict with a piece's name. *out must be freed whether or not the call succeeds. */
static int save_shards_lay_out(const save_request *r, const plan_boxes *boxes, int rank, int size,
                               uint64_t meta_bytes, const h5_poll *poll, save_shards *out,
                               dcp_error *err) {
    out->list = calloc((size_t)r->shards / (size_t)size + 1, sizeof *out->list);
    if (!out->list) return core_fail_memory(err, sizeof *out->list);
    int status = check_owners(r, rank, size, boxes, err);
    for (int k = rank; k < r->shards && !status; k += size) {
        save_shard *s = &out->list[out->n++];
        s->number = k;
        status = lay_out_shard(r, boxes, meta_bytes, poll, s, err);
    }
    return status;
}

static void save_shards_free(save_shards *shards) {
    for (size_t i = 0; i < shards->n; i++) {
        save_shard *s = &shards->list[i];
        save_file_free(&s->file);
        free(s->boxes);
        free(s->tensors);
        free(s->sources);
    }
    free(shards->list);
}

/* For move_sums, a box is a dataset of its own, whatever the file's layout.
 *
 * Let n be the number of a box's holders, c(k) the checksum that holder k has computed, and f a
 * function that scrambles its arguments and the box. Holder k XORs f(k, c(k)) and f(k + 1 mod n,
 * c(k)) into its word. So the XOR of all words contains, for each k, f(k, c(k)) and f(k, c(k - 1)),
 * which cancel out if all checksums are equal. */

static uint64_t bytes_of(state_tensor *const *sorted, const plan_box *b) {
    const dcp_tensor *t = &sorted[b->tensor]->tensor;
    return dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
}

static void add_summed(state_tensor *const *sorted, const plan_box *b, uint64_t *sums,
                       save_replicas *out) {
    const box_copy all = {.run_bytes = bytes_of(sorted, b), .runs = 1};
    format_row *row = &out->rows[out->n];
    move_piece *p = &out->pieces[out->n++];
    *row = (format_row){.tensor = sorted[b->tensor]->tensor, .bytes = all.run_bytes};
    *p = (move_piece){.bytes = row->bytes, .row = row, .box = b->box, .sums = sums};
    move_piece_set_copy(p, &all);
    p->bulk = 0;
    if (b->box->device) p->device = &out->device;
}

static uint64_t blocks_of_box(state_tensor *const *sorted, const plan_box *b) {
    return b->replicated ? (bytes_of(sorted, b) + PLAN_REPLICA_BLOCK - 1) / PLAN_REPLICA_BLOCK : 0;
}

static int fill_replicas(state_tensor *const *sorted, const plan_boxes *boxes, bool share,
                         save_replicas *out, dcp_error *err) {
    uint64_t blocks = 0;
    const size_t most = share ? 0 : boxes->replicas.n_sent;
    out->sums.first = calloc(boxes->n + 1, sizeof *out->sums.first);
    if (!out->sums.first) return core_fail_memory(err, boxes->n * sizeof *out->sums.first);
    for (size_t k = 0; k < boxes->n; k++)
        out->sums.first[k + 1] = blocks += blocks_of_box(sorted, &boxes->boxes[k]);
    out->sums.blocks = calloc(blocks + 1, sizeof *out->sums.blocks);
    out->pieces = calloc(most + 1, sizeof *out->pieces);
    out->rows = calloc(most + 1, sizeof *out->rows);
    if (!out->sums.blocks || !out->pieces || !out->rows)
        return core_fail_memory(err, blocks * 8 + most * sizeof *out->pieces);
    for (size_t k = 0; k < boxes->n && !share; k++)
        if (boxes->boxes[k].replicated && !boxes->boxes[k].keeper)
            add_summed(sorted, &boxes->boxes[k], out->sums.blocks + out->sums.first[k], out);
    return move_pieces_have_copies(out->pieces, out->n)
               ? DCP_OK
               : core_fail_memory(err, out->n * sizeof *out->pieces);
}

int save_replicas_make(state_tensor *const *sorted, const plan_boxes *boxes, bool share,
                       struct staging *staging, save_replicas **out, dcp_error *err) {
    save_replicas *r = *out = calloc(1, sizeof *r);
    if (!r) return core_fail_memory(err, sizeof *r);
    r->boxes = boxes;
    r->sorted = sorted;
    r->device.staging = staging;
    return fill_replicas(sorted, boxes, share, r, err);
}

void save_replicas_free(save_replicas *replicas) {
    if (!replicas) return;
    move_pieces_free(replicas->pieces, replicas->n);
    free(replicas->rows);
    free(replicas->sums.first);
    free(replicas->sums.blocks);
    free(replicas);
}

uint64_t *save_replicas_own(const save_replicas *replicas, size_t k) {
    if (!replicas) return NULL;
    const plan_sums *s = &replicas->sums;
    return s->first[k] < s->first[k + 1] ? s->blocks + s->first[k] : NULL;
}

/* The last steps of splitmix64. A checksum would not be enough: it is linear, so differences would
 * cancel out as well. */
static uint64_t scramble(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

static uint64_t term(uint64_t box, uint64_t holder, uint64_t sum) {
    return scramble(scramble(box + holder) ^ sum);
}

/* Returns the word of box k. If a box has so many holders that some have no turn, the words of
 * those holders don't cancel out, so the replicas are compared. */
static uint64_t word_of_box(const save_replicas *replicas, size_t k) {
    const plan_box *b = &replicas->boxes->boxes[k];
    const uint64_t *blocks = replicas->sums.blocks + replicas->sums.first[k];
    const size_t n = replicas->sums.first[k + 1] - replicas->sums.first[k];
    const size_t dims = core_box_dims(replicas->sorted[b->tensor]->tensor.ndim) * sizeof(uint64_t);
    uint64_t box = core_crc64_raw(~(uint64_t)b->tensor, b->box->box.start, dims);
    box = core_crc64_raw(box, b->box->box.count, dims);
    const uint64_t sum = core_crc64_raw(~0ULL, blocks, n * sizeof *blocks);
    if (b->turn >= b->holders) return term(box, b->turn + (uint64_t)b->rank, sum);
    return term(box, b->turn, sum) ^ term(box, (b->turn + 1u) % b->holders, sum);
}

uint64_t save_replicas_word(const save_replicas *replicas) {
    uint64_t word = 0;
    for (size_t k = 0; replicas && k < replicas->boxes->n; k++)
        if (replicas->boxes->boxes[k].replicated) word ^= word_of_box(replicas, k);
    return word;
}

int save_replicas_compare(const dcp_store *store, const save_request *r,
                          const save_replicas *replicas, uint64_t word, dcp_error *err) {
    dcp_error why;
    uint64_t differ;
    if (!replicas || !word) return DCP_OK;
    int status = plan_replicas_compare(store->comm, r->sorted, replicas->boxes, &replicas->sums,
                                       &differ, &why);
    if (status == DCP_ERR_MISMATCH && r->replicas == DCP_REPLICAS_WARN) {
        if (store->comm->rank == 0)
            store_log(store, DCP_LOG_WARNING, "step %llu: %s", (unsigned long long)r->step,
                      why.message);
        return DCP_OK;
    }
    if (status && err) *err = why;
    return status;
}

/* Planning a save, unless it has the same tensors and boxes as the last one. */

#define META_UNIT (64u << 10)

#define SHARD_MEMBER 128 /* {"rank":99999,"state_id":"...","world":99999} */

/* Returns the length of /dcp/meta: a multiple of 64 KiB, with space for the member "shard" of a
 * shard. */
static uint64_t meta_bytes_of(uint64_t json_bytes, dcp_layout layout) {
    uint64_t bytes = json_bytes + (layout == DCP_LAYOUT_SHARDED ? SHARD_MEMBER : 0);
    return (bytes / META_UNIT + 1) * META_UNIT;
}

static uint64_t hash(uint64_t raw, const void *data, size_t bytes) {
    return core_crc64_raw(raw, data, bytes);
}

static uint64_t local_key(const save_request *request) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < request->n; i++) {
        const state_tensor *t = request->sorted[i];
        uint64_t head[] = {t->tensor.dtype, t->tensor.ndim, t->n_boxes};
        size_t dims = core_box_dims(t->tensor.ndim) * sizeof(uint64_t);
        raw = hash(raw, head, sizeof head);
        raw = hash(raw, t->tensor.shape, dims);
        raw = hash(raw, t->tensor.path, strlen(t->tensor.path) + 1);
        for (size_t k = 0; k < t->n_boxes; k++) {
            int64_t rank = t->boxes[k].rank;
            raw = hash(raw, t->boxes[k].box.start, dims);
            raw = hash(raw, t->boxes[k].box.count, dims);
            raw = hash(raw, &rank, sizeof rank);
        }
    }
    return raw;
}

void save_plan_free(save_plan *plan) {
    if (!plan) return;
    plan_boxes_free(&plan->boxes);
    save_file_free(&plan->file);
    for (int i = 0; i < 2; i++) move_window_cache_free(&plan->moves[i]);
    free(plan->moves);
    save_shards_free(&plan->shards_written);
    free(plan);
}

static bool is_of(const save_plan *plan, const save_request *r) {
    return plan->key == r->key && plan->layout == r->layout && plan->shards == r->shards;
}

void save_plan_vote(const dcp_store *store, save_request *r, const save_plan *last, bool is_made) {
    save_agreed *own = &r->agreed;
    comm_vote *v = &own->vote;
    const bool is_first = store->comm->rank == 0;
    const bool chooses = is_first || move_engine_row(r->engine); /* else only rank 0 chooses */
    if (is_made) {
        r->key = local_key(r);
        own->unchanged = last && is_of(last, r);
        own->json_bytes = is_first ? strlen(r->meta) : 0;
        own->engine = chooses ? move_engine_choose(r->engine, store->dir)->engine : 0;
        own->tensors = own->unchanged ? last->tensors : plan_fingerprint(r->sorted, r->n);
        own->intact = store->has_intact ? store->newest_intact : UINT64_MAX;
    }
    comm_vote_same(v, "the step", r->step);
    comm_vote_same(v, "the layout", r->layout);
    comm_vote_same(v, "the number of shards", (uint64_t)r->shards);
    comm_vote_same(v, "the engine", r->engine);
    comm_vote_same(v, "replicas", r->replicas);
    comm_vote_all(v, &own->unchanged);
    comm_vote_from(v, is_first, &own->json_bytes, 1);
    comm_vote_from(v, chooses, &own->engine, 1);
    comm_vote_equal(v, true, &own->tensors, &own->same_tensors);
    comm_vote_equal(v, true, &own->intact, &own->same_intact);
}

/* Collective. */
static int compare_requests(const dcp_store *store, const save_request *r, dcp_error *err) {
    int status = comm_vote_check(store->comm, &r->agreed.vote, err);
    if (status) return status;
    return plan_tensors_check(store->comm, r->sorted, r->n, r->agreed.same_tensors, err);
}

/* Makes the rows of layout global: one per tensor, in the same order. Paths are copied, since the
 * plan outlives the state. */
static int make_rows(const save_request *r, save_file *file, dcp_error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < r->n; i++) bytes += strlen(r->sorted[i]->tensor.path) + 1;
    file->rows = calloc(r->n + 1, sizeof *file->rows);
    file->paths = malloc(bytes + 1);
    if (!file->rows || !file->paths) return core_fail_memory(err, bytes);
    char *path = file->paths;
    for (size_t i = 0; i < r->n; i++) {
        const state_tensor *t = r->sorted[i];
        file->rows[i] =
            (format_row){.tensor = t->tensor, .bytes = t->bytes, .first_block = file->blocks};
        size_t length = strlen(t->tensor.path) + 1;
        file->rows[i].tensor.path = memcpy(path, t->tensor.path, length);
        path += length;
        file->blocks += format_index_blocks(t->bytes);
    }
    file->n = r->n;
    file->layout = DCP_LAYOUT_GLOBAL;
    return DCP_OK;
}

/* Not collective. Rank 0 lays the file out. The other ranks allocate memory for the offsets and the
 * file's size, which rank 0 sends them later. */
static int lay_out_global(const dcp_comm *comm, const save_request *r, uint64_t meta_bytes,
                          const h5_poll *poll, save_file *file, uint64_t **offsets,
                          dcp_error *err) {
    int status = make_rows(r, file, err);
    *offsets = core_array(r->n + 1, sizeof **offsets);
    if (!status && !*offsets) status = core_fail_memory(err, r->n * sizeof **offsets);
    if (status || comm->rank) return status;
    return h5_skeleton_build(file->rows, file->n, DCP_LAYOUT_GLOBAL, meta_bytes, poll,
                             &file->skeleton, err);
}

static int share_offsets(dcp_comm *comm, save_file *file, uint64_t *offsets, dcp_error *err) {
    for (size_t i = 0; i < file->n; i++) offsets[i] = file->rows[i].offset;
    offsets[file->n] = file->skeleton.file_bytes;
    int status = comm_broadcast(comm, offsets, (file->n + 1) * sizeof *offsets, 0, err);
    for (size_t i = 0; i < file->n && !status; i++) file->rows[i].offset = offsets[i];
    if (!status) file->skeleton.file_bytes = offsets[file->n];
    return status;
}

static int lay_out_sharded(dcp_comm *comm, const save_request *r, const h5_poll *poll,
                           save_plan *plan, dcp_error *err) {
    int status = save_shards_lay_out(r, &plan->boxes, comm->rank, comm->size, plan->meta_bytes,
                                     poll, &plan->shards_written, err);
    return comm_agree(comm, status, err);
}

static save_plan *begin_plan(const save_request *r, uint64_t meta_bytes) {
    save_plan *plan = calloc(1, sizeof *plan);
    struct move_window_cache *moves = calloc(2, sizeof *moves);
    if (!plan || !moves) {
        free(plan);
        free(moves);
        return NULL;
    }
    *plan = (save_plan){.key = r->key,
                        .layout = r->layout,
                        .shards = r->shards,
                        .meta_bytes = meta_bytes,
                        .tensors = r->agreed.tensors,
                        .moves = moves};
    return plan;
}

static int check_stop(void *stop, dcp_error *err) { return comm_stop_poll(stop, err); }

/* Collective; makes a new plan. Rank 0's layout of a global file depends only on the tensors, so
 * rank 0 makes it before the ranks exchange their boxes. */
static int plan_anew(dcp_store *store, const save_request *r, uint64_t meta_bytes, save_plan **out,
                     dcp_error *err) {
    dcp_comm *comm = store->comm;
    const bool is_global = r->layout == DCP_LAYOUT_GLOBAL;
    comm_stop stop = r->progress.stop;
    const h5_poll poll = {check_stop, &stop};
    uint64_t *offsets = NULL;
    plan_boxes boxes = {0};
    save_plan *plan = begin_plan(r, meta_bytes);
    int status = plan ? DCP_OK : core_fail_memory(err, sizeof *plan);
    comm_stop_begin(&stop, comm);
    if (!status && is_global)
        status = lay_out_global(comm, r, meta_bytes, &poll, &plan->file, &offsets, err);
    status = plan_exchange(comm, status, r->sorted, r->n, true, &boxes, err);
    if (!status) {
        plan->boxes = boxes;
        status = is_global ? share_offsets(comm, &plan->file, offsets, err)
                           : lay_out_sharded(comm, r, &poll, plan, err);
    }
    free(offsets);
    if (status) {
        save_plan_free(plan);
        return status;
    }
    save_plan_free(*out);
    *out = plan;
    return DCP_OK;
}

/* Makes the boxes of the plan point into the request's state. The plan was made for a state with
 * the same boxes in the same order. */
static void repoint(save_plan *plan, const save_request *r) {
    size_t k = 0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t b = 0; b < r->sorted[i]->n_boxes; b++)
            plan->boxes.boxes[k++].box = &r->sorted[i]->boxes[b];
}

bool save_plan_matches(save_plan *plan, save_request *r) {
    r->key = local_key(r);
    if (!is_of(plan, r)) return false;
    repoint(plan, r);
    return true;
}

int save_plan_make(dcp_store *store, const save_request *r, save_plan **out, dcp_error *err) {
    const double begin = core_clock_now() - r->agreed.seconds;
    int status = compare_requests(store, r, err);
    if (status) return status;
    const uint64_t meta_bytes = meta_bytes_of(r->agreed.json_bytes, r->layout);
    if (!r->agreed.unchanged || (*out)->meta_bytes != meta_bytes) {
        status = plan_anew(store, r, meta_bytes, out, err);
        if (status) return status;
    } else {
        repoint(*out, r);
    }
    (*out)->engine = move_engine_row((dcp_engine)r->agreed.engine);
    (*out)->json_bytes = r->agreed.json_bytes;
    (*out)->intact = r->agreed.same_intact ? r->agreed.intact : UINT64_MAX;
    (*out)->begin = begin;
    (*out)->end = core_clock_now();
    return DCP_OK;
}
