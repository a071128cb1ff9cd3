/* Files as one string of tokens: bytes, or ids of 2 or 4 bytes. Sequence w consists of tokens w *
 * sequence to (w + 1) * sequence, inclusive. Neighbours share one token, so each token except the
 * first is predicted once per epoch. Every epoch has its own order.
 *
 * Ids are checked when they are read. At the start, only the ids at the beginning of each file are
 * checked: they suffice to detect a wrong type or a wrong tokenizer, and reading many GB would take
 * minutes. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data/joined_files.h"
#include "data/source.h"
#include "programs/fail.h"
#include "random/random.h"

enum { BYTES_VOCABULARY = 256, UINT16_VOCABULARY = 65536, CHECKED_BYTES = 1 << 20 };
enum { LOOKED_AT = 8192 }; /* the bytes at the beginning of a text that are searched for a NUL */

typedef struct sequences {
    data_files files;
    uint64_t sequence, vocab;
    uint32_t width;     /* bytes per token */
    uint8_t *tokens;    /* [sequence + 1] tokens */
    const char *binary; /* for text: the first file with a NUL near its start, at offset `nul`;
                           else NULL */
    uint64_t nul;
} sequences;

static void sequences_close(void *state) {
    sequences *w = state;
    data_files_close(&w->files);
    free(w->tokens);
    free(w);
}

static uint32_t token_at(const uint8_t *bytes, uint32_t width) {
    uint32_t id = 0;
    for (uint32_t i = 0; i < width; i++) id |= (uint32_t)bytes[i] << 8 * i; /* little-endian */
    return id;
}

static int fail_id(const sequences *w, uint64_t offset, uint32_t id, dcp_error *err) {
    uint64_t within;
    const char *path = data_files_at(&w->files, offset, &within);
    return core_fail(
        err, DCP_ERR_ARG,
        "data.path: %s: the uint%" PRIu32 " at byte %" PRIu64 " is %" PRIu32
        ", but the model's vocabulary has only %" PRIu64
        " ids: the file's ids may be those of another tokenizer, or of another data.dtype",
        path, 8 * w->width, within, id, w->vocab);
}

/* Checks that every id is in the model's vocabulary. from: bytes [offset, offset + bytes) of the
 * files. */
static int check_ids(const sequences *w, uint64_t offset, const uint8_t *from, uint64_t bytes,
                     dcp_error *err) {
    if (w->width == 1) return DCP_OK;
    for (uint64_t at = 0; at < bytes; at += w->width) {
        const uint32_t id = token_at(from + at, w->width);
        if (id >= w->vocab) return fail_id(w, offset + at, id, err);
    }
    return DCP_OK;
}

static int check_sizes(const sequences *w, dcp_error *err) {
    for (size_t i = 0; i < w->files.n; i++) {
        const data_file *file = &w->files.list[i];
        if (file->bytes % w->width == 0) continue;
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s holds %" PRIu64
                         " bytes, which is not a multiple of the %" PRIu32
                         " bytes of a token (uint%" PRIu32
                         "): the file may be truncated, or of another data.dtype",
                         file->path, file->bytes, w->width, 8 * w->width);
    }
    return DCP_OK;
}

/* Refuses files of other formats, and ids of another width, because they would silently be read as
 * wrong ids. */
static int check_format(const sequences *w, const data_file *file, const uint8_t *begin,
                        uint64_t bytes, dcp_error *err) {
    const data_format *format = data_formats_find(begin, bytes);
    if (format)
        return core_fail(err, DCP_ERR_ARG, "data.path: %s is %s, not plain ids: %s", file->path,
                         format->what, format->advice);
    const uint32_t wide = data_formats_width(begin, bytes, w->width);
    if (wide == w->width) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s: read as uint%" PRIu32
                     ", its ids have only zeros between them, so it "
                     "holds ids of %" PRIu32 " bytes (int%" PRIu32 "): %s",
                     file->path, 8 * w->width, wide, 8 * wide,
                     wide == 4 ? "set data.dtype=uint32, which reads such ids"
                               : "write them again as uint32, and set data.dtype=uint32");
}

static int check_beginning(sequences *w, const data_file *file, uint8_t *buffer, dcp_error *err) {
    const uint64_t bytes = file->bytes < CHECKED_BYTES ? file->bytes : CHECKED_BYTES;
    int status = data_files_read(&w->files, file->begin, bytes, buffer, err);
    if (status == DCP_OK) status = check_format(w, file, buffer, bytes, err);
    return status == DCP_OK ? check_ids(w, file->begin, buffer, bytes, err) : status;
}

/* Any bytes are valid tokens, so a file that is not text is only reported. */
static int look_at_text(sequences *w, const data_file *file, uint8_t *buffer, dcp_error *err) {
    const uint64_t bytes = file->bytes < LOOKED_AT ? file->bytes : LOOKED_AT;
    if (w->binary) return DCP_OK;
    const int status = data_files_read(&w->files, file->begin, bytes, buffer, err);
    const uint8_t *nul = status == DCP_OK ? memchr(buffer, 0, bytes) : NULL;
    if (!nul) return status;
    w->binary = file->path;
    w->nul = (uint64_t)(nul - buffer);
    return DCP_OK;
}

static int check_files(sequences *w, dcp_error *err) {
    int status = check_sizes(w, err);
    if (status != DCP_OK) return status;
    uint8_t *buffer = malloc(CHECKED_BYTES);
    if (!buffer) return core_fail_memory(err, CHECKED_BYTES);
    for (size_t i = 0; i < w->files.n && status == DCP_OK; i++)
        status = w->width == 1 ? look_at_text(w, &w->files.list[i], buffer, err)
                               : check_beginning(w, &w->files.list[i], buffer, err);
    free(buffer);
    return status;
}

static int check_length(const sequences *w, const char *path, dcp_error *err) {
    const uint64_t tokens = w->files.bytes / w->width;
    if (tokens > w->sequence) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s holds %" PRIu64
                     " %s in %zu %s, but a sample of data.sequence_length %" PRIu64
                     " takes %" PRIu64 ": give more data, or set a smaller data.sequence_length",
                     path, tokens, w->width == 1 ? "bytes" : "tokens", w->files.n,
                     w->files.n == 1 ? "file" : "files", w->sequence, w->sequence + 1);
}

static int sequences_open(const data_options *options, uint32_t width, void **state,
                          dcp_error *err) {
    sequences *w = calloc(1, sizeof *w);
    if (!w) return core_fail_memory(err, sizeof *w);
    w->files.fd = -1;
    w->sequence = options->shape.tokens;
    w->vocab = options->shape.classes;
    w->width = width;
    w->tokens = malloc((options->shape.tokens + 1) * width);
    int status = w->tokens ? data_files_find(options->path, &w->files, err)
                           : core_fail_memory(err, (options->shape.tokens + 1) * width);
    if (status == DCP_OK) status = check_files(w, err);
    if (status == DCP_OK) status = check_length(w, options->path, err);
    if (status == DCP_OK)
        *state = w;
    else
        sequences_close(w);
    return status;
}

static int text_open(const data_options *options, void **state, dcp_error *err) {
    if (options->shape.classes >= BYTES_VOCABULARY) return sequences_open(options, 1, state, err);
    return core_fail(err, DCP_ERR_ARG,
                     "model: a vocabulary of %" PRIu64
                     " is too small for data.type text, whose tokens are 256 byte values; set "
                     "model.vocab_size to at least 256",
                     options->shape.classes);
}

static int tokens_open(const data_options *options, void **state, dcp_error *err) {
    const bool wide = options->dtype ? strcmp(options->dtype, "uint32") == 0
                                     : options->shape.classes > UINT16_VOCABULARY;
    return sequences_open(options, wide ? 4 : 2, state, err);
}

static uint64_t sequences_samples(const void *state) {
    const sequences *w = state;
    return (w->files.bytes / w->width - 1) / w->sequence;
}

static int sequences_read(void *state, uint64_t seed, uint64_t epoch, uint64_t index,
                          const sample_batch *out, dcp_error *err) {
    sequences *w = state;
    const uint64_t number = random_permute(index, sequences_samples(w), seed, epoch);
    const uint64_t begin = number * w->sequence * w->width, bytes = (w->sequence + 1) * w->width;
    int status = data_files_read(&w->files, begin, bytes, w->tokens, err);
    if (status == DCP_OK) status = check_ids(w, begin, w->tokens, bytes, err);
    if (status != DCP_OK) return status;
    for (uint64_t i = 0; i < w->sequence; i++) {
        out->ids[i] = (int32_t)token_at(w->tokens + i * w->width, w->width);
        out->targets[i] = (int32_t)token_at(w->tokens + (i + 1) * w->width, w->width);
    }
    return DCP_OK;
}

static void sequences_contents(const void *state, data_contents *add) {
    const sequences *w = state;
    add->files += w->files.n;
    add->bytes += w->files.bytes;
    if (add->binary || !w->binary) return;
    add->binary = w->binary;
    add->nul = w->nul;
}

const data_source data_text = {
    .type = "text",
    .tokens = true,
    .open = text_open,
    .close = sequences_close,
    .samples = sequences_samples,
    .read = sequences_read,
    .contents = sequences_contents,
};

const data_source data_tokens = {
    .type = "tokens",
    .tokens = true,
    .open = tokens_open,
    .close = sequences_close,
    .samples = sequences_samples,
    .read = sequences_read,
    .contents = sequences_contents,
};
