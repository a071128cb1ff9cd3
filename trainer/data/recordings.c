/* A file of recordings: its lists, and the check that the model accepts its contents. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/joined_files.h"
#include "data/record_files.h"
#include "data/source.h"
#include "models/sample.h"
#include "programs/fail.h"
#include "random/random.h"

/* The remedy for an invalid file. */
#define SPEECH_FILE_ANEW "make the file again with examples/talker/to_records.py"

/* The lists that give the beginning of each record. */
typedef enum speech_list { SPEECH_TEXT, SPEECH_FRAMES } speech_list;

/* How much of a tensor is read at once. The whole contents of a file are checked before a run
 * begins. This is fast, because an hour of speech is only 1.4 MB of codes. */

enum { PIECE_BYTES = 1 << 20 };

/* The contents of a file. */
typedef struct speech_tensors {
    const dcp_tensor *text_starts, *frame_starts, *text, *codes, *speakers, *ids;
} speech_tensors;

static int find_tensors(const record_file *f, speech_tensors *t, dcp_error *err) {
    const struct {
        const char *name;
        dcp_dtype dtype;
        uint32_t ndim;
        const dcp_tensor **out;
    } wanted[] = {{"text_starts", DCP_I64, 1, &t->text_starts},
                  {"frame_starts", DCP_I64, 1, &t->frame_starts},
                  {"text_ids", DCP_U32, 1, &t->text},
                  {"codes", DCP_U16, 2, &t->codes},
                  {"speakers", DCP_F32, 2, &t->speakers},
                  {"speaker_ids", DCP_U32, 1, &t->ids}};
    char own[48];
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const dcp_tensor *found = *wanted[i].out = dcp_st_find(f->reader, wanted[i].name);
        if (found && found->dtype == wanted[i].dtype && found->ndim == wanted[i].ndim) continue;
        if (found)
            snprintf(own, sizeof own, "%s with %" PRIu32 " dimension%s",
                     dcp_dtype_name(found->dtype), found->ndim, found->ndim == 1 ? "" : "s");
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %s is %s, but must be %s with %" PRIu32
                         " dimension%s; " SPEECH_FILE_ANEW,
                         f->path, wanted[i].name, found ? own : "missing",
                         dcp_dtype_name(wanted[i].dtype), wanted[i].ndim,
                         wanted[i].ndim == 1 ? "" : "s");
    }
    return DCP_OK;
}

/* Checks the tensors' sizes. */
static int check_counts(const sample_shape *shape, const record_file *f, const speech_tensors *t,
                        dcp_error *err) {
    const uint64_t starts = t->text_starts->shape[0];
    if (starts < 2 || t->frame_starts->shape[0] != starts || t->ids->shape[0] != starts - 1)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %" PRIu64 " text_starts, %" PRIu64
                         " frame_starts and %" PRIu64
                         " speaker_ids; the first two numbers must be equal and at least 2, and "
                         "the last one less by 1; " SPEECH_FILE_ANEW,
                         f->path, starts, t->frame_starts->shape[0], t->ids->shape[0]);
    if (t->codes->shape[1] != shape->groups)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: the tensor codes has %" PRIu64
                         " codes per frame, but the model's num_code_groups is %" PRIu64
                         ": make records with the model's own codec",
                         f->path, t->codes->shape[1], shape->groups);
    if (t->speakers->shape[1] != shape->dims[0])
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: a speaker's vector has %" PRIu64
                         " numbers, but the model takes vectors of %" PRIu64
                         ": the records are for a model of another size; make them with this model",
                         f->path, t->speakers->shape[1], shape->dims[0]);
    return DCP_OK;
}

/* Checks a list of starts, which must ascend by at least `least`. */
static int check_starts(const record_file *f, speech_list which, uint64_t all, int64_t least,
                        dcp_error *err) {
    static const char *const names[] = {
        [SPEECH_TEXT] = "text_starts", [SPEECH_FRAMES] = "frame_starts"};
    static const char *const things[] = {[SPEECH_TEXT] = "text_ids", [SPEECH_FRAMES] = "codes"};
    const int64_t *starts = f->starts[which];
    if (starts[0] != 0 || starts[f->records] < 0 || (uint64_t)starts[f->records] != all)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %s begins with %" PRId64 " and ends with %" PRId64
                         ", but must begin with 0 and end with the length of %s, %" PRIu64
                         "; " SPEECH_FILE_ANEW,
                         f->path, names[which], starts[0], starts[f->records], things[which], all);
    for (uint64_t i = 0; i < f->records; i++)
        if (starts[i] < 0 || (uint64_t)starts[i + 1] > all || starts[i + 1] < starts[i] + least)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: %s of record %" PRIu64 " is %" PRId64
                             ", and that of the next record is %" PRId64
                             "; each must be larger than the one before it by at least %" PRId64
                             ", and none larger than the last; " SPEECH_FILE_ANEW,
                             f->path, names[which], i, starts[i], starts[i + 1], least);
    return DCP_OK;
}

/* The number of ids or frames of record number `own` of the file. */
static uint64_t data_speech_file_length(const record_file *f, speech_list which, uint64_t own) {
    return (uint64_t)(f->starts[which][own + 1] - f->starts[which][own]);
}

static uint64_t positions_of(const record_file *f, uint64_t own) {
    return data_speech_file_length(f, SPEECH_TEXT, own) +
           data_speech_file_length(f, SPEECH_FRAMES, own) + SAMPLE_SPEECH_AROUND;
}

static uint64_t frames_of(const record_file *f, uint64_t own) {
    return data_speech_file_length(f, SPEECH_FRAMES, own);
}

/* Checks that the length that `of` returns is at most `room` for each record. The message reports
 * the longest record; a `room` of that record's length would suffice. */
static int check_room_of(const record_file *f, uint64_t (*of)(const record_file *f, uint64_t own),
                         uint64_t room, const char *what, const char *key, dcp_error *err) {
    uint64_t longest = 0;
    for (uint64_t i = 1; i < f->records; i++)
        if (of(f, i) > of(f, longest)) longest = i;
    const uint64_t most = of(f, longest);
    if (most <= room) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s: record %" PRIu64 " has %" PRIu64 " %s, but %s is %" PRIu64
                     ": set that key to %" PRIu64
                     ", or make the records with a smaller --max-frames",
                     f->path, longest, most, what, key, room, most);
}

static int check_room(const sample_shape *shape, const record_file *f, dcp_error *err) {
    const int status = check_room_of(f, frames_of, shape->frames, "frames", "data.frames", err);
    if (status != DCP_OK) return status;
    return check_room_of(f, positions_of, shape->tokens, "positions", "data.sequence_length", err);
}

/* The record that contains element number `thing`, according to the list `which` of starts. */
static uint64_t record_of(const record_file *f, speech_list which, uint64_t thing) {
    const uint64_t *starts = (const uint64_t *)f->starts[which]; /* they are not negative */
    return data_sorted_last(starts, f->records, sizeof *starts, thing);
}

/* Elements [first, first + n) of a tensor. */
typedef struct piece {
    const record_file *f;
    const sample_shape *shape;
    uint64_t speakers, first, n;
    union {
        const void *all;
        const uint16_t *codes;
        const uint32_t *ids;
        const float *numbers;
    } is;
} piece;

static int check_text(const piece *p, dcp_error *err) {
    for (uint64_t i = 0; i < p->n; i++) {
        if (p->is.ids[i] < p->shape->texts) continue;
        const uint64_t own = record_of(p->f, SPEECH_TEXT, p->first + i);
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: text id %" PRIu64 " of record %" PRIu64 " is %" PRIu32
                         ", but the model's text_vocab_size is %" PRIu64
                         ": the records may be those of another tokenizer; make them with this "
                         "model's tokenizer",
                         p->f->path, p->first + i - (uint64_t)p->f->starts[SPEECH_TEXT][own], own,
                         p->is.ids[i], p->shape->texts);
    }
    return DCP_OK;
}

static int check_codes(const piece *p, dcp_error *err) {
    const uint64_t groups = p->shape->groups, codes = p->shape->codes;
    const uint64_t first = codes < p->shape->classes ? codes : p->shape->classes;
    for (uint64_t i = 0; i < p->n; i++) {
        const uint64_t frame = (p->first + i) / groups, code = (p->first + i) % groups;
        const uint64_t below = code ? codes : first;
        if (p->is.codes[i] < below) continue;
        const uint64_t own = record_of(p->f, SPEECH_FRAMES, frame);
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: code %" PRIu64 " of frame %" PRIu64 " of record %" PRIu64
                         " is %d, but the model's codes must be below %" PRIu64
                         ": make records with the model's own codec",
                         p->f->path, code, frame - (uint64_t)p->f->starts[SPEECH_FRAMES][own], own,
                         p->is.codes[i], below);
    }
    return DCP_OK;
}

static int check_speakers(const piece *p, dcp_error *err) {
    const uint64_t width = p->shape->dims[0];
    for (uint64_t i = 0; i < p->n; i++)
        if (!isfinite(p->is.numbers[i]))
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: number %" PRIu64 " of speaker %" PRIu64
                             "'s vector is %g; " SPEECH_FILE_ANEW,
                             p->f->path, (p->first + i) % width, (p->first + i) / width,
                             (double)p->is.numbers[i]);
    return DCP_OK;
}

/* Checks that the records' speakers exist. */
static int check_speaker_ids(const piece *p, dcp_error *err) {
    for (uint64_t i = 0; i < p->n; i++)
        if (p->is.ids[i] >= p->speakers)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: record %" PRIu64 " has speaker %" PRIu32
                             ", but the file has only %" PRIu64
                             " speakers, counted from 0; " SPEECH_FILE_ANEW,
                             p->f->path, p->first + i, p->is.ids[i], p->speakers);
    return DCP_OK;
}

/* Checks a whole tensor. memory: a buffer of PIECE_BYTES. */
static int check_tensor(piece *p, const char *name, int (*check)(const piece *p, dcp_error *err),
                        void *memory, dcp_error *err) {
    const dcp_tensor *tensor = dcp_st_find(p->f->reader, name);
    const uint64_t each = dcp_dtype_bytes(tensor->dtype), all = dcp_tensor_bytes(tensor) / each;
    const uint64_t most = PIECE_BYTES / each;
    int status = DCP_OK;
    p->is.all = memory;
    for (p->first = 0; p->first < all && status == DCP_OK; p->first += most) {
        p->n = all - p->first < most ? all - p->first : most;
        status = data_record_file_part(p->f, name, p->first * each, p->n * each, memory, err);
        if (status == DCP_OK) status = check(p, err);
    }
    return status;
}

static int check_contents(const sample_shape *shape, const record_file *f, uint64_t speakers,
                          dcp_error *err) {
    piece p = {.f = f, .shape = shape, .speakers = speakers};
    void *memory = malloc(PIECE_BYTES);
    if (!memory) return core_fail_memory(err, PIECE_BYTES);
    int status = check_tensor(&p, "speaker_ids", check_speaker_ids, memory, err);
    if (status == DCP_OK) status = check_tensor(&p, "speakers", check_speakers, memory, err);
    if (status == DCP_OK) status = check_tensor(&p, "text_ids", check_text, memory, err);
    if (status == DCP_OK) status = check_tensor(&p, "codes", check_codes, memory, err);
    free(memory);
    return status;
}

/* Implements record_file_read. ctx: the sample_shape into which the file's records must fit. */
static int data_speech_file_read(void *ctx, record_file *f, dcp_error *err) {
    const sample_shape *shape = ctx;
    speech_tensors t;
    int status = find_tensors(f, &t, err);
    if (status == DCP_OK) status = check_counts(shape, f, &t, err);
    if (status == DCP_OK) status = data_record_file_starts(f, SPEECH_TEXT, "text_starts", err);
    if (status == DCP_OK) status = data_record_file_starts(f, SPEECH_FRAMES, "frame_starts", err);
    if (status != DCP_OK) return status;
    f->records = t.text_starts->shape[0] - 1;
    status = check_starts(f, SPEECH_TEXT, t.text->shape[0], SAMPLE_SPEECH_LEAST_TEXT, err);
    if (status == DCP_OK) status = check_starts(f, SPEECH_FRAMES, t.codes->shape[0], 1, err);
    if (status == DCP_OK) status = check_room(shape, f, err);
    return status == DCP_OK ? check_contents(shape, f, t.speakers->shape[0], err) : status;
}

/* A file has these tensors:
 * - U32 text_ids [ids] and U16 codes [frames, groups]: the contents of all records, one after the
 *   other.
 * - I64 text_starts and frame_starts [records + 1]: where each record begins, and where the last
 *   one ends.
 * - F32 speakers [speakers, hidden], and U32 speaker_ids [records].
 * A sample is one record; the rest of the sample's ids and codes are -1 and do not count.
 * examples/talker/to_records.py makes these files. */

typedef struct recordings {
    record_files files;
    sample_shape shape;
    uint32_t *text;  /* [tokens] */
    uint16_t *codes; /* [frames, groups] */
} recordings;

static void recordings_close(void *state) {
    recordings *s = state;
    data_record_files_close(&s->files);
    free(s->text);
    free(s->codes);
    free(s);
}

static int recordings_open(const data_options *options, void **state, dcp_error *err) {
    recordings *s = calloc(1, sizeof *s);
    if (!s) return core_fail_memory(err, sizeof *s);
    s->files.files.fd = -1;
    s->shape = options->shape;
    s->text = calloc(s->shape.tokens, sizeof *s->text);
    s->codes = calloc(s->shape.frames * s->shape.groups, sizeof *s->codes);
    const int status =
        s->text && s->codes
            ? data_record_files_open(options->path, SPEECH_FILE_ANEW, data_speech_file_read,
                                     &s->shape, &s->files, err)
            : core_fail_memory(err, model_sample_ids(&s->shape) * sizeof *s->text);
    if (status == DCP_OK)
        *state = s;
    else
        recordings_close(s);
    return status;
}

static uint64_t recordings_samples(const void *state) {
    return ((const recordings *)state)->files.records;
}

/* A record of a file: its number in the file, its t ids of text, and its T frames. */
typedef struct speech_record {
    const record_file *f;
    uint64_t own, t, T;
} speech_record;

static int fetch_text(recordings *s, const speech_record *r, dcp_error *err) {
    const uint64_t begin = (uint64_t)r->f->starts[SPEECH_TEXT][r->own], each = sizeof *s->text;
    return data_record_file_part(r->f, "text_ids", begin * each, r->t * each, s->text, err);
}

static int fetch_codes(recordings *s, const speech_record *r, dcp_error *err) {
    const uint64_t begin = (uint64_t)r->f->starts[SPEECH_FRAMES][r->own];
    const uint64_t each = s->shape.groups * sizeof *s->codes;
    return data_record_file_part(r->f, "codes", begin * each, r->T * each, s->codes, err);
}

static int fetch_speaker(const recordings *s, const speech_record *r, float *out, dcp_error *err) {
    const uint64_t bytes = s->shape.dims[0] * sizeof *out;
    uint32_t id;
    const int status =
        data_record_file_part(r->f, "speaker_ids", r->own * sizeof id, sizeof id, &id, err);
    if (status != DCP_OK) return status;
    return data_record_file_part(r->f, "speakers", id * bytes, bytes, out, err);
}

/* Writes the record's contents, and marks the rest of the room as empty. */
static void put_record(const recordings *s, const speech_record *r, const sample_batch *out) {
    const sample_shape *shape = &s->shape;
    const uint64_t groups = shape->groups, first = r->t + SAMPLE_SPEECH_AROUND - 1;
    int32_t *codes = out->ids + shape->tokens, *others = out->targets + shape->tokens;
    for (uint64_t i = 0; i < model_sample_ids(shape); i++) out->ids[i] = -1;
    for (uint64_t i = 0; i < shape->targets; i++) out->targets[i] = SAMPLE_IGNORE;
    for (uint64_t i = 0; i < r->t; i++) out->ids[i] = (int32_t)s->text[i];
    for (uint64_t i = 0; i < r->T * groups; i++) codes[i] = s->codes[i];
    for (uint64_t j = 0; j < r->T; j++) {
        out->targets[first + j] = codes[j * groups];
        for (uint64_t i = 1; i < groups; i++)
            others[j * (groups - 1) + i - 1] = codes[j * groups + i];
    }
    out->targets[first + r->T] = (int32_t)shape->end;
}

static int recordings_read(void *state, uint64_t seed, uint64_t epoch, uint64_t index,
                           const sample_batch *out, dcp_error *err) {
    recordings *s = state;
    const uint64_t number = random_permute(index, s->files.records, seed, epoch);
    speech_record r = {.f = data_record_files_holder(&s->files, number)};
    r.own = number - r.f->first;
    r.t = data_speech_file_length(r.f, SPEECH_TEXT, r.own);
    r.T = data_speech_file_length(r.f, SPEECH_FRAMES, r.own);
    int status = fetch_text(s, &r, err);
    if (status == DCP_OK) status = fetch_codes(s, &r, err);
    if (status == DCP_OK) status = fetch_speaker(s, &r, out->values, err);
    if (status == DCP_OK) put_record(s, &r, out);
    return status;
}

const data_source data_recordings = {
    .type = "speech",
    .speech = true,
    .open = recordings_open,
    .close = recordings_close,
    .samples = recordings_samples,
    .read = recordings_read,
};
