/* A file has U32 text_ids and U16 codes [frames, groups] of all its records, one after the other,
 * I64 text_starts and frame_starts [records + 1] of where each begins, and the end; F32 speakers
 * [speakers, hidden], and U32 speaker_ids [records]. A sample is one record; what is left of its
 * room is -1 and does not count. examples/talker/to_records.py makes such files. */
#include "data/recordings.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "data/record_files.h"
#include "programs/fail.h"
#include "random/random.h"

/* What to do about a file that is not so. */
#define ANEW "make it anew with examples/talker/to_records.py"

enum { TEXT, FRAMES };

typedef struct recordings {
    record_files files;
    sample_shape shape;
    uint32_t *text;  /* [tokens] */
    uint16_t *codes; /* [frames, groups] */
} recordings;

static uint64_t width_of(const recordings *s) { return s->shape.dims[0]; }

static void recordings_close(void *state) {
    recordings *s = state;
    data_record_files_close(&s->files);
    free(s->text);
    free(s->codes);
    free(s);
}

/* What a file holds. */
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
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const dcp_tensor *found = *wanted[i].out = dcp_st_find(f->reader, wanted[i].name);
        if (found && found->dtype == wanted[i].dtype && found->ndim == wanted[i].ndim) continue;
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %s is %s%s; recordings have it as %s with %" PRIu32
                         " dimensions; " ANEW,
                         f->path, wanted[i].name, found ? dcp_dtype_name(found->dtype) : "missing",
                         found && found->ndim != wanted[i].ndim ? ", of others" : "",
                         dcp_dtype_name(wanted[i].dtype), wanted[i].ndim);
    }
    return DCP_OK;
}

/* How many of each there are. */
static int check_counts(const recordings *s, const record_file *f, const speech_tensors *t,
                        dcp_error *err) {
    const uint64_t starts = t->text_starts->shape[0];
    if (starts < 2 || t->frame_starts->shape[0] != starts || t->ids->shape[0] != starts - 1)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %" PRIu64 " text_starts, %" PRIu64
                         " frame_starts and %" PRIu64
                         " speaker_ids; there are as many of the first two, 2 at least, and one "
                         "less of the last; " ANEW,
                         f->path, starts, t->frame_starts->shape[0], t->ids->shape[0]);
    if (t->codes->shape[1] != s->shape.groups)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: codes has %" PRIu64
                         " a frame, the model's num_code_groups is %" PRIu64
                         ": make records with the model's own codec",
                         f->path, t->codes->shape[1], s->shape.groups);
    if (t->speakers->shape[1] != width_of(s))
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: a speaker's vector has %" PRIu64
                         " numbers, the model takes %" PRIu64
                         ": records of another model size; make them with this one's",
                         f->path, t->speakers->shape[1], width_of(s));
    return DCP_OK;
}

/* One list of starts, by `least` at least. */
static int check_starts(const record_file *f, int which, uint64_t all, int64_t least,
                        dcp_error *err) {
    static const char *const names[] = {[TEXT] = "text_starts", [FRAMES] = "frame_starts"};
    static const char *const things[] = {[TEXT] = "text_ids", [FRAMES] = "codes"};
    const int64_t *starts = f->starts[which];
    if (starts[0] != 0 || starts[f->records] < 0 || (uint64_t)starts[f->records] != all)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %s goes from %" PRId64 " to %" PRId64
                         ", %s from 0 to %" PRIu64 "; " ANEW,
                         f->path, names[which], starts[0], starts[f->records], things[which], all);
    for (uint64_t i = 0; i < f->records; i++)
        if (starts[i] < 0 || (uint64_t)starts[i + 1] > all || starts[i + 1] < starts[i] + least)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: %s of record %" PRIu64 " is %" PRId64
                             ", and of the next one %" PRId64 "; they ascend by %" PRId64
                             " at least; " ANEW,
                             f->path, names[which], i, starts[i], starts[i + 1], least);
    return DCP_OK;
}

static uint64_t length_of(const record_file *f, int which, uint64_t own) {
    return (uint64_t)(f->starts[which][own + 1] - f->starts[which][own]);
}

static int check_room(const recordings *s, const record_file *f, dcp_error *err) {
    for (uint64_t i = 0; i < f->records; i++) {
        const uint64_t t = length_of(f, TEXT, i), T = length_of(f, FRAMES, i);
        const uint64_t length = t + T + SAMPLE_SPEECH_AROUND;
        if (T > s->shape.frames)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: record %" PRIu64 " has %" PRIu64
                             " frames, data.frames is %" PRIu64 ": set it to %" PRIu64
                             ", or make records with --max-frames",
                             f->path, i, T, s->shape.frames, T);
        if (length > s->shape.tokens)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: record %" PRIu64 " has %" PRIu64
                             " positions, data.sequence_length is %" PRIu64 ": set it to %" PRIu64
                             ", or make records with --max-frames",
                             f->path, i, length, s->shape.tokens, length);
    }
    return DCP_OK;
}

/* Each record has one that is there. */
static int check_speaker_ids(const record_file *f, uint64_t speakers, dcp_error *err) {
    for (uint64_t i = 0; i < f->records; i++) {
        uint32_t id;
        const int status =
            data_record_file_part(f, "speaker_ids", i * sizeof id, sizeof id, &id, err);
        if (status != DCP_OK) return status;
        if (id >= speakers)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: record %" PRIu64 " has speaker %" PRIu32 " of %" PRIu64
                             "; " ANEW,
                             f->path, i, id, speakers);
    }
    return DCP_OK;
}

static int read_lists(void *ctx, record_file *f, dcp_error *err) {
    const recordings *s = ctx;
    speech_tensors t;
    int status = find_tensors(f, &t, err);
    if (status == DCP_OK) status = check_counts(s, f, &t, err);
    if (status == DCP_OK) status = data_record_file_starts(f, TEXT, "text_starts", err);
    if (status == DCP_OK) status = data_record_file_starts(f, FRAMES, "frame_starts", err);
    if (status != DCP_OK) return status;
    f->records = t.text_starts->shape[0] - 1;
    status = check_starts(f, TEXT, t.text->shape[0], SAMPLE_SPEECH_LEAST_TEXT, err);
    if (status == DCP_OK) status = check_starts(f, FRAMES, t.codes->shape[0], 1, err);
    if (status == DCP_OK) status = check_room(s, f, err);
    return status == DCP_OK ? check_speaker_ids(f, t.speakers->shape[0], err) : status;
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
            ? data_record_files_open(options->path, ANEW, read_lists, s, &s->files, err)
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

/* A record of a file: its number there, and how much it has. */
typedef struct speech_record {
    const record_file *f;
    uint64_t own, t, T;
} speech_record;

static int fetch_text(recordings *s, const speech_record *r, dcp_error *err) {
    const uint64_t begin = (uint64_t)r->f->starts[TEXT][r->own], each = sizeof *s->text;
    const int status =
        data_record_file_part(r->f, "text_ids", begin * each, r->t * each, s->text, err);
    for (uint64_t i = 0; i < r->t && status == DCP_OK; i++)
        if (s->text[i] >= s->shape.texts)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: text id %" PRIu64 " of record %" PRIu64 " is %" PRIu32
                             ", the model's text_vocab_size %" PRIu64
                             ": another tokenizer's records? make them with this model's",
                             r->f->path, i, r->own, s->text[i], s->shape.texts);
    return status;
}

static int fetch_codes(recordings *s, const speech_record *r, dcp_error *err) {
    const uint64_t groups = s->shape.groups, begin = (uint64_t)r->f->starts[FRAMES][r->own];
    const uint64_t each = groups * sizeof *s->codes;
    const int status =
        data_record_file_part(r->f, "codes", begin * each, r->T * each, s->codes, err);
    for (uint64_t i = 0; i < r->T * groups && status == DCP_OK; i++)
        if (s->codes[i] >= s->shape.codes || s->codes[i] >= s->shape.classes)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: code %" PRIu64 " of frame %" PRIu64
                             " of record %" PRIu64 " is %d; the model's lie below %" PRIu64
                             ": make records with the model's own codec",
                             r->f->path, i % groups, i / groups, r->own, s->codes[i],
                             s->shape.codes);
    return status;
}

static int fetch_speaker(const recordings *s, const speech_record *r, float *out, dcp_error *err) {
    const uint64_t bytes = width_of(s) * sizeof *out;
    uint32_t id;
    int status =
        data_record_file_part(r->f, "speaker_ids", r->own * sizeof id, sizeof id, &id, err);
    if (status == DCP_OK)
        status = data_record_file_part(r->f, "speakers", id * bytes, bytes, out, err);
    for (uint64_t i = 0; i < width_of(s) && status == DCP_OK; i++)
        if (!isfinite(out[i]))
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: number %" PRIu64 " of speaker %" PRIu32
                             "'s vector is %g; " ANEW,
                             r->f->path, i, id, (double)out[i]);
    return status;
}

/* What is there, before what is none. */
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
    r.t = length_of(r.f, TEXT, r.own);
    r.T = length_of(r.f, FRAMES, r.own);
    int status = fetch_text(s, &r, err);
    if (status == DCP_OK) status = fetch_codes(s, &r, err);
    if (status == DCP_OK) status = fetch_speaker(s, &r, out->values, err);
    if (status == DCP_OK) put_record(s, &r, out);
    return status;
}

const data_source data_recordings = {
    .type = "speech",
    .speech = 1,
    .open = recordings_open,
    .close = recordings_close,
    .samples = recordings_samples,
    .read = recordings_read,
};
