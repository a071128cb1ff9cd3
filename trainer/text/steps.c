/* Steps as functions of a row each: a step finds its piece's text valid until it returns, and calls
 * what follows for each piece that it makes. */
#include "text/steps.h"

#include <string.h>
#include <utf8proc.h>

#include "programs/fail.h"
#include "text/utf8.h"

typedef int (*step_fn)(text_run *run, size_t at, text_piece piece, dcp_error *err);

static int do_from(text_run *run, size_t at, text_piece piece, dcp_error *err);

static int fail_memory(dcp_error *err) { return core_fail_memory(err, 0); }

static text_buffer *empty_buffer(text_run *run, size_t at) {
    run->written[at].bytes = 0;
    return &run->written[at];
}

/* What the step wrote goes to the next one. */
static int give_written(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    const text_buffer *b = &run->written[at];
    return do_from(run, at + 1, (text_piece){b->at, b->bytes, piece.is_first}, err);
}

/* A piece that is not handed on yet, as the next one may belong to it. */
typedef struct held_piece {
    text_run *run;
    size_t at;
    text_piece whole;
    size_t start, end;
    int is_held, is_match, was_match;
} held_piece;

static int let_go(held_piece *h, dcp_error *err) {
    const text_piece part = {h->whole.text + h->start, h->end - h->start,
                             h->whole.is_first && h->start == 0};
    if (!h->is_held) return DCP_OK;
    h->is_held = 0;
    return do_from(h->run, h->at + 1, part, err);
}

static int joins(const held_piece *h, text_delimiter delimiter, int is_match) {
    if (!h->is_held) return 0;
    switch (delimiter) {
    case DELIMITER_TO_PREVIOUS:
        return is_match && !h->was_match;
    case DELIMITER_TO_NEXT:
        return !is_match && h->was_match;
    case DELIMITER_CONTIGUOUS:
        return is_match == h->was_match;
    default:
        return 0;
    }
}

static int take_range(held_piece *h, size_t start, size_t end, int is_match, dcp_error *err) {
    const text_step *step = &h->run->steps->step[h->at];
    int status = DCP_OK;
    is_match ^= step->inverted;
    if (joins(h, step->delimiter, is_match)) {
        h->end = end;
    } else if ((status = let_go(h, err)) == DCP_OK) {
        h->start = start, h->end = end;
        h->is_held = !(is_match && step->delimiter == DELIMITER_REMOVED);
    }
    h->was_match = is_match;
    return status;
}

static size_t after_character(text_piece piece, size_t at) {
    size_t invalid;
    return at < piece.bytes ? at + text_utf8_character(piece.text + at, piece.bytes - at, &invalid)
                            : at + 1;
}

typedef int (*match_fn)(void *ctx, size_t start, size_t end, int is_match, dcp_error *err);

/* All matches and what is between them, in their order. A match of nothing has no bytes, and none
 * comes where the last match ended. */
static int each_match(text_run *run, const text_step *step, text_piece piece, match_fn take,
                      void *ctx, dcp_error *err) {
    size_t done = 0, start, end = SIZE_MAX;
    int status = DCP_OK;
    for (size_t at = 0; !status && at <= piece.bytes;) {
        const size_t last = end;
        status = text_pattern_next(step->pattern, run->found, piece.text, piece.bytes, at, &start,
                                   &end, err);
        if (status != 1) break;
        at = end > start ? end : after_character(piece, end);
        status = DCP_OK;
        if (start == end && end == last) continue;
        if (done < start) status = take(ctx, done, start, 0, err);
        if (!status) status = take(ctx, start, end, 1, err);
        done = end;
    }
    if (!status && done < piece.bytes) status = take(ctx, done, piece.bytes, 0, err);
    return status;
}

static int take_split(void *ctx, size_t start, size_t end, int is_match, dcp_error *err) {
    return take_range(ctx, start, end, is_match, err);
}

static int do_split(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    held_piece h = {.run = run, .at = at, .whole = piece};
    const int status = each_match(run, &run->steps->step[at], piece, take_split, &h, err);
    return status ? status : let_go(&h, err);
}

typedef struct replacing {
    text_buffer *out;
    const char *from, *by;
} replacing;

static int take_replaced(void *ctx, size_t start, size_t end, int is_match, dcp_error *err) {
    const replacing *r = ctx;
    const char *put = is_match ? r->by : r->from + start;
    const size_t bytes = is_match ? strlen(r->by) : end - start;
    return text_buffer_put(r->out, put, bytes) ? DCP_OK : fail_memory(err);
}

static int do_replace(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    const text_step *step = &run->steps->step[at];
    replacing r = {empty_buffer(run, at), piece.text, step->string};
    const int status = each_match(run, step, piece, take_replaced, &r, err);
    return status ? status : give_written(run, at, piece, err);
}

static int do_prepend(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    const text_step *step = &run->steps->step[at];
    const size_t bytes = strlen(step->string);
    const int is_there = piece.bytes >= bytes && !memcmp(piece.text, step->string, bytes);
    if ((step->when != WHEN_ALWAYS && is_there) ||
        (step->when == WHEN_NOT_THERE_AND_FIRST && !piece.is_first))
        return do_from(run, at + 1, piece, err);
    text_buffer *out = empty_buffer(run, at);
    if (!text_buffer_put(out, step->string, bytes) ||
        !text_buffer_put(out, piece.text, piece.bytes))
        return fail_memory(err);
    return give_written(run, at, piece, err);
}

static int is_ascii(text_piece piece) {
    for (size_t i = 0; i < piece.bytes; i++)
        if ((unsigned char)piece.text[i] >= 0x80) return 0;
    return 1;
}

static int do_normalize(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    utf8proc_uint8_t *normal = NULL;
    if (is_ascii(piece)) return do_from(run, at + 1, piece, err);
    const utf8proc_ssize_t bytes =
        utf8proc_map((const utf8proc_uint8_t *)piece.text, (utf8proc_ssize_t)piece.bytes, &normal,
                     (utf8proc_option_t)run->steps->step[at].form);
    if (bytes < 0)
        return core_fail(err, DCP_ERR_NO_MEMORY, "cannot normalize %zu bytes: %s", piece.bytes,
                         utf8proc_errmsg(bytes));
    const text_piece out = {(const char *)normal, (size_t)bytes, piece.is_first};
    const int status = do_from(run, at + 1, out, err);
    free(normal);
    return status;
}

static int do_name_bytes(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    text_buffer *out = empty_buffer(run, at);
    for (size_t i = 0; i < piece.bytes; i++) {
        char name[2];
        if (!text_buffer_put(out, name, text_utf8_of_byte((unsigned char)piece.text[i], name)))
            return fail_memory(err);
    }
    return give_written(run, at, piece, err);
}

static int do_unname_bytes(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    text_buffer *out = empty_buffer(run, at);
    size_t length;
    for (size_t i = 0; i < piece.bytes; i += length) {
        const int byte = text_utf8_to_byte(piece.text + i, piece.bytes - i, &length);
        if (byte < 0) return do_from(run, at + 1, piece, err);
        const char c = (char)byte;
        if (!text_buffer_put(out, &c, 1)) return fail_memory(err);
    }
    return give_written(run, at, piece, err);
}

static int digit_of(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

static int do_byte_fallback(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    const char *t = piece.text;
    if (piece.bytes != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>' || digit_of(t[3]) < 0 ||
        digit_of(t[4]) < 0)
        return do_from(run, at + 1, piece, err);
    const char byte = (char)(digit_of(t[3]) * 16 + digit_of(t[4]));
    return do_from(run, at + 1, (text_piece){&byte, 1, piece.is_first}, err);
}

static int do_strip(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    const text_step *step = &run->steps->step[at];
    const size_t bytes = strlen(step->string);
    for (size_t i = 0; i < step->left && piece.bytes >= bytes; i++) {
        if (memcmp(piece.text, step->string, bytes) != 0) break;
        piece.text += bytes, piece.bytes -= bytes;
    }
    for (size_t i = 0; i < step->right && piece.bytes >= bytes; i++) {
        if (memcmp(piece.text + piece.bytes - bytes, step->string, bytes) != 0) break;
        piece.bytes -= bytes;
    }
    return do_from(run, at + 1, piece, err);
}

static const step_fn functions[] = {
    [STEP_SPLIT] = do_split,
    [STEP_REPLACE] = do_replace,
    [STEP_PREPEND] = do_prepend,
    [STEP_NORMALIZE] = do_normalize,
    [STEP_NAME_BYTES] = do_name_bytes,
    [STEP_UNNAME_BYTES] = do_unname_bytes,
    [STEP_BYTE_FALLBACK] = do_byte_fallback,
    [STEP_STRIP] = do_strip,
};

static int do_from(text_run *run, size_t at, text_piece piece, dcp_error *err) {
    if (!piece.bytes) return DCP_OK;
    if (at == run->steps->n) return run->take(run->ctx, piece, err);
    return functions[run->steps->step[at].kind](run, at, piece, err);
}

int text_run_do(text_run *run, text_piece piece, dcp_error *err) {
    return do_from(run, 0, piece, err);
}

int text_run_open(text_run *run, const text_steps *steps, text_piece_fn take, void *ctx,
                  dcp_error *err) {
    *run = (text_run){.steps = steps, .take = take, .ctx = ctx};
    run->found = pcre2_match_data_create(1, NULL);
    return run->found ? DCP_OK : fail_memory(err);
}

void text_run_close(text_run *run) {
    pcre2_match_data_free(run->found);
    for (size_t i = 0; i < TEXT_MOST_STEPS; i++) free(run->written[i].at);
}

int text_steps_add(text_steps *steps, const text_part *part, text_step step, dcp_error *err) {
    char *string = strdup(step.string ? step.string : "");
    int status = string ? DCP_OK : fail_memory(err);
    if (!status && steps->n == TEXT_MOST_STEPS)
        status = text_part_fail(part, DCP_ERR_UNSUPPORTED, err, "more than %d steps are there",
                                TEXT_MOST_STEPS);
    if (status) {
        free(string);
        text_pattern_close(step.pattern);
        return status;
    }
    step.string = string;
    steps->step[steps->n++] = step;
    return DCP_OK;
}

void text_steps_close(text_steps *steps) {
    for (size_t i = 0; i < steps->n; i++) {
        free(steps->step[i].string);
        text_pattern_close(steps->step[i].pattern);
    }
    steps->n = 0;
}
