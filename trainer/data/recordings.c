/* A file has U32 text_ids and U16 codes [frames, groups] of all its records, one after the other,
 * I64 text_starts and frame_starts [records + 1] of where each begins, and the end; F32 speakers
 * [speakers, hidden], and U32 speaker_ids [records]. A sample is one record; what is left of its
 * room is -1 and does not count. examples/talker/to_records.py makes such files. */
#include "data/recordings.h"

#include <stdlib.h>

#include "data/speech_file.h"
#include "programs/fail.h"
#include "random/random.h"

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

/* A record of a file: its number there, and how much it has. */
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
    .speech = 1,
    .open = recordings_open,
    .close = recordings_close,
    .samples = recordings_samples,
    .read = recordings_read,
};
