/* Packs items into bins. Bins that are not full are stored in stacks, one stack for each amount of
 * room left. A bit per stack says whether it contains bins, so placing an item inspects only a few
 * words of these bits, and never searches the bins. */
#include "data/records.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data/record_files.h"
#include "data/source.h"
#include "programs/fail.h"
#include "random/random.h"

#define NONE UINT64_MAX
enum { WORD = 64 };

typedef struct open_bins {
    uint64_t n, room, bins;
    uint64_t *order;  /* [n] the items, the largest first, equal ones in their original order */
    uint64_t *starts; /* [room + 1] where the items of each size begin in `order`; used only while
                         `order` is made */
    uint64_t *bin;    /* [n] the bin that contains an item */
    uint64_t *next;   /* [n] the bin below each bin in its stack */
    uint64_t *stack;  /* [room + 1] the topmost bin with this much room, or NONE */
    uint64_t *filled; /* [room / WORD + 1] a bit per stack, set if the stack is not empty */
} open_bins;

static void end_bins(open_bins *p) {
    free(p->order);
    free(p->starts);
    free(p->bin);
    free(p->next);
    free(p->stack);
    free(p->filled);
}

static int begin_bins(open_bins *p, dcp_error *err) {
    const size_t items = p->n * sizeof(uint64_t), rooms = (p->room + 1) * sizeof(uint64_t);
    p->order = malloc(items);
    p->starts = calloc(p->room + 1, sizeof *p->starts);
    p->bin = malloc(items);
    p->next = malloc(items);
    p->stack = malloc(rooms);
    p->filled = calloc(p->room / WORD + 1, sizeof *p->filled);
    if (!p->order || !p->starts || !p->bin || !p->next || !p->stack || !p->filled)
        return core_fail_memory(err, 3 * items + 3 * rooms);
    for (uint64_t left = 0; left <= p->room; left++) p->stack[left] = NONE;
    return DCP_OK;
}

/* A counting sort. */
static void order_items(open_bins *p, const uint64_t *sizes) {
    uint64_t before = 0;
    for (uint64_t i = 0; i < p->n; i++) p->starts[sizes[i]]++;
    for (uint64_t size = p->room; size > 0; size--) {
        const uint64_t such = p->starts[size];
        p->starts[size] = before;
        before += such;
    }
    for (uint64_t i = 0; i < p->n; i++) p->order[p->starts[sizes[i]]++] = i;
}

static void push_bin(open_bins *p, uint64_t bin, uint64_t left) {
    p->next[bin] = p->stack[left];
    p->stack[left] = bin;
    p->filled[left / WORD] |= (uint64_t)1 << left % WORD;
}

static uint64_t take_out(open_bins *p, uint64_t left) {
    const uint64_t bin = p->stack[left];
    p->stack[left] = p->next[bin];
    if (p->stack[left] == NONE) p->filled[left / WORD] &= ~((uint64_t)1 << left % WORD);
    return bin;
}

/* The smallest room, of at least `size`, that any bin has; NONE if no bin has that much. */
static uint64_t least_room(const open_bins *p, uint64_t size) {
    uint64_t word = size / WORD, bits = p->filled[word] >> size % WORD << size % WORD;
    while (!bits) {
        if (++word > p->room / WORD) return NONE;
        bits = p->filled[word];
    }
    return word * WORD + (uint64_t)__builtin_ctzll(bits);
}

static void put_all(open_bins *p, const uint64_t *sizes) {
    for (uint64_t i = 0; i < p->n; i++) {
        const uint64_t thing = p->order[i], size = sizes[thing];
        const uint64_t found = least_room(p, size), room = found == NONE ? p->room : found;
        p->bin[thing] = found == NONE ? p->bins++ : take_out(p, found);
        if (room > size) push_bin(p, p->bin[thing], room - size);
    }
}

/* Lists each bin's items in the order in which they were placed. */
static int list_bins(const open_bins *p, data_bins *out, dcp_error *err) {
    out->n = p->bins;
    out->first = calloc(p->bins + 2, sizeof *out->first);
    out->items = malloc(p->n * sizeof *out->items);
    if (!out->first || !out->items) return core_fail_memory(err, 2 * p->n * sizeof *out->first);
    uint64_t *next = out->first + 1; /* entry b becomes the end of bin b while items are listed */
    for (uint64_t i = 0; i < p->n; i++) next[p->bin[i] + 1]++;
    for (uint64_t bin = 0; bin < p->bins; bin++) next[bin + 1] += next[bin];
    for (uint64_t i = 0; i < p->n; i++) out->items[next[p->bin[p->order[i]]]++] = p->order[i];
    return DCP_OK;
}

int data_bins_pack(const uint64_t *sizes, uint64_t n, uint64_t room, data_bins *out,
                   dcp_error *err) {
    open_bins p = {.n = n, .room = room};
    *out = (data_bins){0};
    int status = begin_bins(&p, err);
    if (status == DCP_OK) {
        order_items(&p, sizes);
        put_all(&p, sizes);
        status = list_bins(&p, out, err);
    }
    end_bins(&p);
    if (status != DCP_OK) data_bins_free(out);
    return status;
}

void data_bins_free(data_bins *bins) {
    free(bins->first);
    free(bins->items);
    *bins = (data_bins){0};
}

/* A file has U32 input_ids [tokens] and U8 loss_mask [tokens] of all its records, one after the
 * other, and I64 starts [records + 1]: where each record begins, and where the last one ends. A
 * sample is one record, starting with its first token. Each token predicts the next one, which
 * counts if its mask is 1. The rest of the sample has id 0 and does not count; under a causal mask
 * no earlier token attends to it. Every epoch has its own order. examples/chat_to_records.py makes
 * these files.
 *
 * With packing, a sample is a bin of records, one after the other, each with its own positions; the
 * rest of the sample is treated as one more record. Bins are the same in every epoch; only their
 * order differs. */

/* The remedy for an invalid file. */
#define ANEW "make the file again with examples/chat_to_records.py"

static const char ids_name[] = "input_ids", mask_name[] = "loss_mask", starts_name[] = "starts";

enum { STARTS = 0 };

typedef struct records {
    record_files files;
    uint64_t sequence, vocab;
    uint32_t *ids;  /* [sequence + 1] */
    uint8_t *mask;  /* [sequence + 1] */
    data_bins bins; /* for packed records; otherwise n is 0 */
} records;

static void records_close(void *state) {
    records *r = state;
    data_record_files_close(&r->files);
    data_bins_free(&r->bins);
    free(r->ids);
    free(r->mask);
    free(r);
}

static int find_tensor(const record_file *f, const char *name, dcp_dtype dtype,
                       const dcp_tensor **out, dcp_error *err) {
    const dcp_tensor *tensor = dcp_st_find(f->reader, name);
    *out = tensor;
    if (tensor && tensor->dtype == dtype && tensor->ndim == 1) return DCP_OK;
    return core_fail(
        err, DCP_ERR_ARG,
        "data.path: %s: %s is %s%s; a file of records must have input_ids U32, loss_mask U8 and "
        "starts I64, each of one dimension (examples/chat_to_records.py)",
        f->path, name, tensor ? dcp_dtype_name(tensor->dtype) : "missing",
        tensor && tensor->ndim != 1 ? ", not of one dimension" : "");
}

static int check_starts(const records *r, const record_file *f, uint64_t tokens, dcp_error *err) {
    const int64_t *starts = f->starts[STARTS];
    const uint64_t n = f->records;
    if (starts[0] != 0 || starts[n] < 0 || (uint64_t)starts[n] != tokens)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: starts begins with %" PRId64 " and ends with %" PRId64
                         ", but must begin with 0 and end with the length of input_ids, %" PRIu64
                         "; " ANEW,
                         f->path, starts[0], starts[n], tokens);
    for (uint64_t i = 0; i < n; i++) {
        if (starts[i + 1] <= starts[i] + 1 || (uint64_t)starts[i + 1] > tokens)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: starts of record %" PRIu64 " is %" PRId64
                             ", and that of the next record is %" PRId64
                             "; each must be larger than the one before it by at least 2, for a "
                             "token and one to predict, and none larger than the last; " ANEW,
                             f->path, i, starts[i], starts[i + 1]);
        const uint64_t length = (uint64_t)(starts[i + 1] - starts[i]);
        if (length > r->sequence + 1)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: record %" PRIu64 " has %" PRIu64
                             " tokens, but a sample of data.sequence_length %" PRIu64
                             " takes only %" PRIu64 ": set data.sequence_length to %" PRIu64
                             ", or make records with fewer tokens",
                             f->path, i, length, r->sequence, r->sequence + 1, length - 1);
    }
    return DCP_OK;
}

static int read_lists(void *ctx, record_file *f, dcp_error *err) {
    const records *r = ctx;
    const dcp_tensor *ids, *mask, *starts;
    int status = find_tensor(f, ids_name, DCP_U32, &ids, err);
    if (status == DCP_OK) status = find_tensor(f, mask_name, DCP_U8, &mask, err);
    if (status == DCP_OK) status = find_tensor(f, starts_name, DCP_I64, &starts, err);
    if (status != DCP_OK) return status;
    if (mask->shape[0] != ids->shape[0] || starts->shape[0] < 2)
        return core_fail(
            err, DCP_ERR_ARG,
            "data.path: %s: %" PRIu64 " input_ids, %" PRIu64 " loss_mask and %" PRIu64
            " starts; the first two numbers must be equal, and the last at least 2; " ANEW,
            f->path, ids->shape[0], mask->shape[0], starts->shape[0]);
    status = data_record_file_starts(f, STARTS, starts_name, err);
    f->records = starts->shape[0] - 1;
    return status == DCP_OK ? check_starts(r, f, ids->shape[0], err) : status;
}

/* Packs the records. Each contributes all of its tokens except the last one. */
static int pack_records(records *r, dcp_error *err) {
    uint64_t *sizes = malloc(r->files.records * sizeof *sizes), n = 0;
    if (!sizes) return core_fail_memory(err, r->files.records * sizeof *sizes);
    for (size_t i = 0; i < r->files.files.n; i++) {
        const int64_t *starts = r->files.list[i].starts[STARTS];
        for (uint64_t own = 0; own < r->files.list[i].records; own++)
            sizes[n++] = (uint64_t)(starts[own + 1] - starts[own]) - 1;
    }
    const int status = data_bins_pack(sizes, n, r->sequence, &r->bins, err);
    free(sizes);
    return status;
}

static int records_open(const data_options *options, void **state, dcp_error *err) {
    records *r = calloc(1, sizeof *r);
    if (!r) return core_fail_memory(err, sizeof *r);
    r->files.files.fd = -1;
    r->sequence = options->shape.tokens;
    r->vocab = options->shape.classes;
    r->ids = malloc((r->sequence + 1) * sizeof *r->ids);
    r->mask = malloc(r->sequence + 1);
    int status = r->ids && r->mask
                     ? data_record_files_open(options->path, ANEW, read_lists, r, &r->files, err)
                     : core_fail_memory(err, (r->sequence + 1) * sizeof *r->ids);
    if (status == DCP_OK && options->shape.packed) status = pack_records(r, err);
    if (status == DCP_OK)
        *state = r;
    else
        records_close(r);
    return status;
}

static uint64_t records_samples(const void *state) {
    const records *r = state;
    return r->bins.n ? r->bins.n : r->files.records;
}

/* Reads a record into ids and mask; *n: its number of tokens. */
static int fetch_record(records *r, uint64_t record, uint64_t *n, dcp_error *err) {
    const record_file *f = data_record_files_holder(&r->files, record);
    const uint64_t own = record - f->first, begin = (uint64_t)f->starts[STARTS][own];
    *n = (uint64_t)f->starts[STARTS][own + 1] - begin;
    int status = data_record_file_part(f, ids_name, begin * sizeof *r->ids, *n * sizeof *r->ids,
                                       r->ids, err);
    if (status == DCP_OK) status = data_record_file_part(f, mask_name, begin, *n, r->mask, err);
    if (status != DCP_OK) return status;
    for (uint64_t i = 0; i < *n; i++)
        if (r->ids[i] >= r->vocab || r->mask[i] > 1)
            return core_fail(
                err, DCP_ERR_ARG,
                "data.path: %s: token %" PRIu64 " of record %" PRIu64 " is %" PRIu32
                " with mask %d, but the model's vocabulary has only %" PRIu64
                " ids, and a mask must be 0 or 1: the records may be those of another tokenizer",
                f->path, i, own, r->ids[i], r->mask[i], r->vocab);
    return DCP_OK;
}

/* Writes a record at *at, and advances *at to its end. */
static int put_record(records *r, uint64_t record, const sample_batch *out, uint64_t *at,
                      dcp_error *err) {
    uint64_t n;
    const int status = fetch_record(r, record, &n, err);
    if (status != DCP_OK) return status;
    for (uint64_t i = 0; i + 1 < n; i++) {
        out->ids[*at + i] = (int32_t)r->ids[i];
        out->targets[*at + i] = r->mask[i + 1] ? (int32_t)r->ids[i + 1] : SAMPLE_IGNORE;
        if (out->places) out->places[*at + i] = (int32_t)i;
    }
    *at += n - 1;
    return DCP_OK;
}

static void fill_rest(const records *r, const sample_batch *out, uint64_t at) {
    for (uint64_t i = at; i < r->sequence; i++) {
        out->ids[i] = 0;
        out->targets[i] = SAMPLE_IGNORE;
        if (out->places) out->places[i] = (int32_t)(i - at);
    }
}

static int records_read(void *state, uint64_t seed, uint64_t epoch, uint64_t index,
                        const sample_batch *out, dcp_error *err) {
    records *r = state;
    const uint64_t number = random_permute(index, records_samples(r), seed, epoch);
    const uint64_t *which = r->bins.n ? r->bins.items + r->bins.first[number] : &number;
    const uint64_t n = r->bins.n ? r->bins.first[number + 1] - r->bins.first[number] : 1;
    uint64_t at = 0;
    int status = DCP_OK;
    for (uint64_t i = 0; i < n && status == DCP_OK; i++)
        status = put_record(r, which[i], out, &at, err);
    if (status == DCP_OK) fill_rest(r, out, at);
    return status;
}

static void records_count(const void *state, uint64_t *n, uint64_t *tokens) {
    const records *r = state;
    *n += r->files.records;
    for (size_t i = 0; i < r->files.files.n; i++) {
        const record_file *f = &r->files.list[i];
        *tokens += (uint64_t)f->starts[STARTS][f->records] - f->records;
    }
}

const data_source data_records = {
    .type = "records",
    .tokens = true,
    .open = records_open,
    .close = records_close,
    .samples = records_samples,
    .read = records_read,
    .count = records_count,
};
