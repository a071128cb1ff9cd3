/* All of a file is looked at before a run begins: an hour of speech is 1.4 MB of codes. */
#include "data/speech_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/sorted.h"
#include "models/sample.h"
#include "programs/fail.h"

enum { PIECE_BYTES = 1 << 20 };

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
    char own[48];
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const dcp_tensor *found = *wanted[i].out = dcp_st_find(f->reader, wanted[i].name);
        if (found && found->dtype == wanted[i].dtype && found->ndim == wanted[i].ndim) continue;
        if (found)
            snprintf(own, sizeof own, "%s with %" PRIu32, dcp_dtype_name(found->dtype),
                     found->ndim);
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %s is %s; recordings have it as %s with %" PRIu32
                         " dimension%s; " SPEECH_FILE_ANEW,
                         f->path, wanted[i].name, found ? own : "missing",
                         dcp_dtype_name(wanted[i].dtype), wanted[i].ndim,
                         wanted[i].ndim == 1 ? "" : "s");
    }
    return DCP_OK;
}

/* How many of each there are. */
static int check_counts(const sample_shape *shape, const record_file *f, const speech_tensors *t,
                        dcp_error *err) {
    const uint64_t starts = t->text_starts->shape[0];
    if (starts < 2 || t->frame_starts->shape[0] != starts || t->ids->shape[0] != starts - 1)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %" PRIu64 " text_starts, %" PRIu64
                         " frame_starts and %" PRIu64
                         " speaker_ids; there are as many of the first two, 2 at least, and one "
                         "less of the last; " SPEECH_FILE_ANEW,
                         f->path, starts, t->frame_starts->shape[0], t->ids->shape[0]);
    if (t->codes->shape[1] != shape->groups)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: codes has %" PRIu64
                         " a frame, the model's num_code_groups is %" PRIu64
                         ": make records with the model's own codec",
                         f->path, t->codes->shape[1], shape->groups);
    if (t->speakers->shape[1] != shape->dims[0])
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: a speaker's vector has %" PRIu64
                         " numbers, the model takes %" PRIu64
                         ": records of another model size; make them with this one's",
                         f->path, t->speakers->shape[1], shape->dims[0]);
    return DCP_OK;
}

/* One list of starts, by `least` at least. */
static int check_starts(const record_file *f, speech_list which, uint64_t all, int64_t least,
                        dcp_error *err) {
    static const char *const names[] = {
        [SPEECH_TEXT] = "text_starts", [SPEECH_FRAMES] = "frame_starts"};
    static const char *const things[] = {[SPEECH_TEXT] = "text_ids", [SPEECH_FRAMES] = "codes"};
    const int64_t *starts = f->starts[which];
    if (starts[0] != 0 || starts[f->records] < 0 || (uint64_t)starts[f->records] != all)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %s goes from %" PRId64 " to %" PRId64
                         ", %s from 0 to %" PRIu64 "; " SPEECH_FILE_ANEW,
                         f->path, names[which], starts[0], starts[f->records], things[which], all);
    for (uint64_t i = 0; i < f->records; i++)
        if (starts[i] < 0 || (uint64_t)starts[i + 1] > all || starts[i + 1] < starts[i] + least)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: %s of record %" PRIu64 " is %" PRId64
                             ", and of the next one %" PRId64 "; they ascend by %" PRId64
                             " at least; " SPEECH_FILE_ANEW,
                             f->path, names[which], i, starts[i], starts[i + 1], least);
    return DCP_OK;
}

uint64_t data_speech_file_length(const record_file *f, speech_list which, uint64_t own) {
    return (uint64_t)(f->starts[which][own + 1] - f->starts[which][own]);
}

static uint64_t positions_of(const record_file *f, uint64_t own) {
    return data_speech_file_length(f, SPEECH_TEXT, own) +
           data_speech_file_length(f, SPEECH_FRAMES, own) + SAMPLE_SPEECH_AROUND;
}

static uint64_t frames_of(const record_file *f, uint64_t own) {
    return data_speech_file_length(f, SPEECH_FRAMES, own);
}

/* The record that has the most of them, so that a message says what suffices. */
static int check_room_of(const record_file *f, uint64_t (*of)(const record_file *f, uint64_t own),
                         uint64_t room, const char *what, const char *key, dcp_error *err) {
    uint64_t longest = 0;
    for (uint64_t i = 1; i < f->records; i++)
        if (of(f, i) > of(f, longest)) longest = i;
    const uint64_t most = of(f, longest);
    if (most <= room) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s: record %" PRIu64 " has %" PRIu64 " %s, %s is %" PRIu64
                     ": set it to %" PRIu64 ", or make records with --max-frames",
                     f->path, longest, most, what, key, room, most);
}

static int check_room(const sample_shape *shape, const record_file *f, dcp_error *err) {
    const int status = check_room_of(f, frames_of, shape->frames, "frames", "data.frames", err);
    if (status != DCP_OK) return status;
    return check_room_of(f, positions_of, shape->tokens, "positions", "data.sequence_length", err);
}

/* The record that one of the things is of which such a list has the beginnings. */
static uint64_t record_of(const record_file *f, speech_list which, uint64_t thing) {
    const uint64_t *starts = (const uint64_t *)f->starts[which]; /* none is below 0 */
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
                         ", the model's text_vocab_size %" PRIu64
                         ": another tokenizer's records? make them with this model's",
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
                         " is %d; the model's lie below %" PRIu64
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

/* Each record has one that is there. */
static int check_speaker_ids(const piece *p, dcp_error *err) {
    for (uint64_t i = 0; i < p->n; i++)
        if (p->is.ids[i] >= p->speakers)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: record %" PRIu64 " has speaker %" PRIu32 " of %" PRIu64
                             "; " SPEECH_FILE_ANEW,
                             p->f->path, p->first + i, p->is.ids[i], p->speakers);
    return DCP_OK;
}

/* All of a tensor; memory: PIECE_BYTES. */
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

int data_speech_file_read(void *ctx, record_file *f, dcp_error *err) {
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
