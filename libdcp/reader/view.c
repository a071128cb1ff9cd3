#include "reader/view.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "reader/lookup.h"
#include "reader/packed.h"

static int by_want(const void *a, const void *b) {
    const reader_request *x = a, *y = b;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static uint64_t words_of_want(const reader_request *want) {
    return 1 + 2 * core_box_dims(want->tensor->tensor.ndim);
}

/* Puts the tensor's number and the box of each request into the message to the tensor's home or, if
 * `alone`, to this rank. */
static int place_wants(const dcp_checkpoint *ckpt, const reader_request *wants, size_t n,
                       bool alone, reader_alltoall *alltoall, dcp_error *err) {
    int status = DCP_OK;
    for (int placing = 0; placing < 2 && !status; placing++) {
        for (size_t i = 0; i < n; i++) {
            size_t tensor = (size_t)(wants[i].tensor - ckpt->tensors);
            uint32_t dims = core_box_dims(wants[i].tensor->tensor.ndim);
            int home = alone ? ckpt->comm->rank : reader_checkpoint_home(ckpt, tensor);
            if (!placing) {
                reader_alltoall_count(alltoall, home, words_of_want(&wants[i]));
                continue;
            }
            uint64_t *at = reader_alltoall_reserve(alltoall, home, words_of_want(&wants[i]));
            at[0] = tensor;
            memcpy(at + 1, wants[i].box->start, 8ULL * dims);
            memcpy(at + 1 + dims, wants[i].box->count, 8ULL * dims);
        }
        if (!placing) status = reader_alltoall_allocate(alltoall, err);
    }
    return status;
}

/* The part of a tensor's rows that another rank requests from this rank. */
typedef struct asked_rows {
    const reader_tensor *tensor;
    size_t from, to;      /* the range that contains the requested rows */
    unsigned char *marks; /* one byte per row: 1 if it is requested */
} asked_rows;

static int take_box(const dcp_checkpoint *ckpt, const uint64_t *at, const uint64_t *end,
                    dcp_box *box, dcp_error *err) {
    bool is_here = at[0] < ckpt->n_tensors && ckpt->tensors[at[0]].rows;
    uint32_t dims = is_here ? core_box_dims(ckpt->tensors[at[0]].tensor.ndim) : 0;
    bool fits = is_here && (uint64_t)(end - at) >= 1 + 2 * dims;
    *box = (dcp_box){{0}, {0}};
    if (fits) {
        memcpy(box->start, at + 1, 8ULL * dims);
        memcpy(box->count, at + 1 + dims, 8ULL * dims);
    }
    for (uint32_t d = 0; d < dims && fits; d++)
        fits = box->start[d] <= ckpt->tensors[at[0]].tensor.shape[d] &&
               box->count[d] <= ckpt->tensors[at[0]].tensor.shape[d] - box->start[d];
    if (fits) return DCP_OK;
    return core_fail(err, DCP_ERR_MISMATCH, "a rank requested an invalid box or an unknown tensor");
}

static void mark_box(const dcp_checkpoint *ckpt, asked_rows *r, const dcp_box *box) {
    const reader_tensor *t = r->tensor;
    size_t first, end;
    dcp_box shared;
    reader_packed p;
    reader_packed_near(t, t->rows, t->n_datasets, box, &first, &end);
    for (size_t k = first; k < end; k++) {
        reader_packed_decode(ckpt, t->rows[k], &p);
        if (!p.bytes || !core_box_intersect(core_box_dims(t->tensor.ndim), &p.box, box, &shared))
            continue;
        r->marks[k] = 1;
        if (k < r->from) r->from = k;
        if (k >= r->to) r->to = k + 1;
    }
}

/* Appends the marked rows and clears their marks. */
static int append_marked(const dcp_checkpoint *ckpt, asked_rows *r, comm_buffer *out,
                         dcp_error *err) {
    for (size_t k = r->from; k < r->to; k++) {
        reader_packed p;
        if (!r->marks[k]) continue;
        r->marks[k] = 0;
        reader_packed_decode(ckpt, r->tensor->rows[k], &p);
        unsigned char *at = comm_buffer_append(out, 8 * p.words);
        if (!at) return core_fail_memory(err, out->bytes);
        memcpy(at, r->tensor->rows[k], 8 * p.words);
    }
    return DCP_OK;
}

/* Answers one rank's boxes, which are sorted by tensor: appends, once, each row that shares
 * elements with at least one of these boxes. */
static int answer_rank(const dcp_checkpoint *ckpt, const uint64_t *at, const uint64_t *end,
                       unsigned char *marks, comm_buffer *out, dcp_error *err) {
    int status = DCP_OK;
    while (at < end && !status) {
        const uint64_t tensor = at[0];
        asked_rows r = {.from = SIZE_MAX, .marks = marks};
        while (at < end && at[0] == tensor && !status) {
            dcp_box box;
            status = take_box(ckpt, at, end, &box, err);
            if (status) break;
            r.tensor = &ckpt->tensors[tensor];
            mark_box(ckpt, &r, &box);
            at += 1 + 2 * core_box_dims(r.tensor->tensor.ndim);
        }
        if (!status) status = append_marked(ckpt, &r, out, err);
    }
    return status;
}

int reader_view_answer(const dcp_checkpoint *ckpt, const uint64_t *asked,
                       const uint64_t *asked_bytes, comm_buffer *out, uint64_t *out_bytes,
                       dcp_error *err) {
    const uint64_t *at = asked;
    size_t most = 0;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (ckpt->tensors[i].rows && ckpt->tensors[i].n_datasets > most)
            most = ckpt->tensors[i].n_datasets;
    unsigned char *marks = calloc(most + 1, 1);
    int status = marks ? DCP_OK : core_fail_memory(err, most);
    for (int r = 0; r < ckpt->comm->size && !status; r++) {
        const uint64_t *end = at + asked_bytes[r] / 8, before = out->bytes;
        status = answer_rank(ckpt, at, end, marks, out, err);
        out_bytes[r] = out->bytes - before;
        at = end;
    }
    free(marks);
    return status;
}

static int answer_all(const dcp_checkpoint *ckpt, const reader_alltoall *asked,
                      reader_alltoall *answers, dcp_error *err) {
    return reader_view_answer(ckpt, (const uint64_t *)(const void *)asked->in.data, asked->received,
                              &answers->out, answers->bytes, err);
}

/* Records in the view where the received rows of each tensor are. A tensor's rows are contiguous
 * and sorted. */
static int take_rows(const dcp_checkpoint *ckpt, const uint64_t *at, const uint64_t *end,
                     reader_view *view, dcp_error *err) {
    reader_packed p;
    for (size_t before = SIZE_MAX; at < end; before = p.tensor, at += p.words) {
        int status = reader_packed_check(ckpt, at, end, &p, err);
        if (!status && !p.crcs)
            status = core_fail(err, DCP_ERR_MISMATCH, "a rank sent a row without checksums");
        if (status) return status;
        reader_datasets *known = &view->of[p.tensor];
        if (p.tensor != before && known->n)
            return core_fail(err, DCP_ERR_MISMATCH, "a rank sent a tensor's rows in two parts");
        if (!known->n++) known->rows = at;
        known->blocks += format_index_blocks(p.bytes);
    }
    return DCP_OK;
}

static int take_answers(const dcp_checkpoint *ckpt, comm_buffer *answers, reader_view *view,
                        dcp_error *err) {
    const uint64_t *begin = view->packed = (uint64_t *)(void *)answers->data;
    const uint64_t *end = begin + answers->bytes / 8;
    *answers = (comm_buffer){0};
    return take_rows(ckpt, begin, end, view, err);
}

/* Treats this rank's only message, which is addressed to itself, as received. A rank that has
 * copies of all rows answers its own requests in this way. */
static void keep_message(const dcp_checkpoint *ckpt, reader_alltoall *alltoall) {
    alltoall->in = alltoall->out;
    alltoall->out = (comm_buffer){0};
    alltoall->received[ckpt->comm->rank] = alltoall->in.bytes;
}

static int request_locally(dcp_checkpoint *ckpt, reader_request *wants, size_t n, reader_view *view,
                           reader_alltoall *asked, reader_alltoall *answers, dcp_error *err) {
    int status = place_wants(ckpt, wants, n, true, asked, err);
    if (status) return status;
    keep_message(ckpt, asked);
    status = answer_all(ckpt, asked, answers, err);
    if (status) return status;
    keep_message(ckpt, answers);
    return take_answers(ckpt, &answers->in, view, err);
}

/* Collective. */
static int request_from_homes(dcp_checkpoint *ckpt, int status, reader_request *wants, size_t n,
                              reader_view *view, reader_alltoall *asked, reader_alltoall *answers,
                              int *own, dcp_error *err) {
    if (!status) status = place_wants(ckpt, wants, n, false, asked, err);
    status = reader_alltoall_run(asked, status, err);
    if (status) return status;
    status = answer_all(ckpt, asked, answers, err);
    status = reader_alltoall_run(answers, status, err);
    if (!status) *own = take_answers(ckpt, &answers->in, view, err);
    return status;
}

static int make_view(const dcp_checkpoint *ckpt, reader_view *out, dcp_error *err) {
    *out = (reader_view){.of = calloc(ckpt->n_tensors + 1, sizeof *out->of), .n = ckpt->n_tensors};
    return out->of ? DCP_OK : core_fail_memory(err, ckpt->n_tensors * sizeof *out->of);
}

int reader_view_local(dcp_checkpoint *ckpt, reader_view *out, dcp_error *err) {
    assert(ckpt->rows == READER_ROWS_HERE);
    int status = make_view(ckpt, out, err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++)
        out->of[i] = (reader_datasets){.datasets = ckpt->tensors[i].datasets,
                                       .n = ckpt->tensors[i].n_datasets,
                                       .blocks = ckpt->tensors[i].blocks};
    return status;
}

int reader_view_unpack(dcp_checkpoint *ckpt, comm_buffer *answers, reader_view *out,
                       dcp_error *err) {
    int status = make_view(ckpt, out, err);
    return status ? status : take_answers(ckpt, answers, out, err);
}

int reader_view_request(dcp_checkpoint *ckpt, int status, reader_request *wants, size_t n,
                        reader_view *out, int *own, dcp_error *err) {
    const bool alone = ckpt->rows == READER_ROWS_COPIED || ckpt->comm->size == 1;
    reader_alltoall asked = {.comm = ckpt->comm}, answers = {.comm = ckpt->comm};
    *out = (reader_view){.of = NULL};
    *own = DCP_OK;
    if (!status) status = make_view(ckpt, out, err);
    if (!status) status = reader_alltoall_make(&asked, ckpt->comm, err);
    if (!status) status = reader_alltoall_make(&answers, ckpt->comm, err);
    if (!status && n) qsort(wants, n, sizeof *wants, by_want);
    if (!alone) {
        status = request_from_homes(ckpt, status, wants, n, out, &asked, &answers, own, err);
    } else {
        *own = status ? status : request_locally(ckpt, wants, n, out, &asked, &answers, err);
        status = DCP_OK;
    }
    reader_alltoall_free(&asked);
    reader_alltoall_free(&answers);
    return status;
}

int reader_view_open(dcp_checkpoint *ckpt, reader_datasets *known, dcp_error *err) {
    if (known->datasets || !known->n) return DCP_OK;
    const uint64_t **rows = core_array(known->n, sizeof *rows), *at = known->rows;
    if (!rows) return core_fail_memory(err, known->n * sizeof *rows);
    for (size_t k = 0; k < known->n; k++) {
        reader_packed p;
        reader_packed_decode(ckpt, rows[k] = at, &p);
        at += p.words;
    }
    int status = reader_packed_expand(ckpt, rows, known->n, &known->datasets, err);
    uint64_t blocks = 0;
    for (size_t k = 0; k < known->n && !status; k++) {
        known->datasets[k].known_blocks = blocks;
        blocks += format_index_blocks(known->datasets[k].row->bytes);
    }
    free(rows);
    return status;
}

void reader_view_close(reader_datasets *known) {
    if (!known->rows) return;
    free(known->datasets);
    known->datasets = NULL;
}

int reader_view_open_all(dcp_checkpoint *ckpt, reader_view *view, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < view->n && !status; i++)
        status = reader_view_open(ckpt, &view->of[i], err);
    return status;
}

void reader_view_free(reader_view *view) {
    for (size_t i = 0; view->of && i < view->n; i++) reader_view_close(&view->of[i]);
    free(view->of);
    free(view->packed);
    *view = (reader_view){0};
}

/* The result of a look-up, kept until the close. If several threads look up the same datasets at
 * the same time, the first result is kept. There is no lock: in a process made by fork, it
 * could be held forever by a thread that exists only in the parent. */
typedef struct reader_memory {
    struct reader_memory *before;
    void *datasets, *words;
} reader_memory;

static reader_memory *make_found(void *datasets, void *words, dcp_error *err) {
    reader_memory *m = malloc(sizeof *m);
    if (m)
        *m = (reader_memory){NULL, datasets, words};
    else
        core_fail_memory(err, sizeof *m);
    return m;
}

static void free_found(reader_memory *m) {
    free(m->datasets);
    free(m->words);
    free(m);
}

/* Sets *place to `found`, which `m` owns, and gives `m` to the checkpoint; frees `m` instead if
 * another thread has set *place. */
static void publish(dcp_checkpoint *ckpt, void *place, void *found, reader_memory *m) {
    void *none = NULL;
    if (!__atomic_compare_exchange_n((void **)place, &none, found, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        free_found(m);
        return;
    }
    m->before = __atomic_load_n(&ckpt->found, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&ckpt->found, &m->before, m, 1, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
        continue;
}

void reader_view_free_found(dcp_checkpoint *ckpt) {
    for (reader_memory *m = ckpt->found, *before; m; m = before) {
        before = m->before;
        free_found(m);
    }
    ckpt->found = NULL;
}

/* Sorts the tensor's rows, which were found in all files, and checks that they are the rows that
 * the tensor's home has. */
static int join_found(const dcp_checkpoint *ckpt, const reader_tensor *t, comm_buffer *found,
                      uint64_t ***out, dcp_error *err) {
    uint64_t *begin = (uint64_t *)(void *)found->data, *end = begin + found->bytes / 8;
    size_t n = 0;
    reader_packed p;
    reader_tensor again = *t;
    for (uint64_t *at = begin; at < end; at += p.words, n++) reader_packed_decode(ckpt, at, &p);
    uint64_t **rows = *out = core_array(n + 1, sizeof *rows);
    if (!rows) return core_fail_memory(err, n * sizeof *rows);
    n = 0;
    for (uint64_t *at = begin; at < end; at += p.words) {
        reader_packed_decode(ckpt, at, &p);
        rows[n++] = at;
    }
    int status = reader_packed_join(ckpt, &again, rows, n, err);
    if (!status && (again.digest != t->digest || again.n_datasets != t->n_datasets))
        status = core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, ckpt->path,
                                               "tensor %s: the shards' indexes are not what they "
                                               "were when the step was opened",
                                               t->tensor.path),
                                  t->tensor.path, err);
    return status;
}

static int look_up(dcp_checkpoint *ckpt, const reader_tensor *t, reader_dataset **out,
                   comm_buffer *found, dcp_error *err) {
    uint64_t **rows = NULL;
    int status = DCP_OK;
    if (ckpt->scattered)
        return core_fail_tensor(
            core_fail_at(
                err, DCP_ERR_UNSUPPORTED, ckpt->path,
                "tensor %s: its rows are on rank %d, not on this rank: load it with dcp_load",
                t->tensor.path, reader_checkpoint_home(ckpt, (size_t)(t - ckpt->tensors))),
            t->tensor.path, err);
    for (size_t f = 0; f < ckpt->n_files && !status; f++)
        status = reader_lookup_rows(ckpt, t, &ckpt->files[f], found, err);
    if (!status) status = join_found(ckpt, t, found, &rows, err);
    if (!status)
        status = reader_packed_expand(ckpt, (const uint64_t *const *)rows, t->n_datasets, out, err);
    free(rows);
    return status;
}

static int find_datasets(dcp_checkpoint *ckpt, reader_tensor *t, dcp_error *err) {
    reader_dataset *datasets = NULL;
    comm_buffer found = {0};
    int status = t->rows ? reader_packed_expand(ckpt, t->rows, t->n_datasets, &datasets, err)
                         : look_up(ckpt, t, &datasets, &found, err);
    reader_memory *m = status ? NULL : make_found(datasets, found.data, err);
    if (m) {
        publish(ckpt, &t->datasets, datasets, m);
        return DCP_OK;
    }
    free(datasets);
    free(found.data);
    return status ? status : DCP_ERR_NO_MEMORY;
}

int reader_view_all(dcp_checkpoint *ckpt, const reader_tensor *t, reader_datasets *out,
                    dcp_error *err) {
    reader_tensor *own = (reader_tensor *)t;
    int status = DCP_OK;
    if (!__atomic_load_n(&own->datasets, __ATOMIC_ACQUIRE)) status = find_datasets(ckpt, own, err);
    *out = (reader_datasets){.datasets = __atomic_load_n(&own->datasets, __ATOMIC_ACQUIRE),
                             .n = status ? 0 : own->n_datasets,
                             .blocks = own->blocks};
    return status;
}

int reader_view_crcs(dcp_checkpoint *ckpt, reader_dataset *dataset, dcp_error *err) {
    uint64_t *crcs = NULL;
    if (__atomic_load_n(&dataset->crcs, __ATOMIC_ACQUIRE)) return DCP_OK;
    int status = reader_lookup_crcs(dataset, &crcs, err);
    if (status) return status;
    reader_memory *m = make_found(NULL, crcs, err);
    if (m)
        publish(ckpt, &dataset->crcs, crcs, m);
    else
        free(crcs);
    return m ? DCP_OK : DCP_ERR_NO_MEMORY;
}

int reader_view_dataset(dcp_checkpoint *ckpt, const reader_tensor *t, size_t k, bool with_crcs,
                        reader_dataset *out, dcp_error *err) {
    reader_datasets known;
    int status = reader_view_all(ckpt, t, &known, err);
    if (!status && with_crcs) status = reader_view_crcs(ckpt, &known.datasets[k], err);
    if (status) return status;
    const reader_dataset *p = &known.datasets[k];
    *out = (reader_dataset){.file = p->file,
                            .row = p->row,
                            .crcs = __atomic_load_n(&p->crcs, __ATOMIC_ACQUIRE),
                            .first_block = p->first_block,
                            .known_blocks = p->known_blocks};
    return DCP_OK;
}
