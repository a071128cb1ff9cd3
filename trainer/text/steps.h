/* What is done to a text, step by step: normalizers and pre-tokenizers before it becomes tokens,
 * and decoders for the text of a token. A step takes a piece and hands pieces to the next one. */
#pragma once

#include <stddef.h>

#include "text/buffer.h"
#include "text/patterns.h"

enum { TEXT_MOST_STEPS = 32 };

typedef enum text_step_kind {
    STEP_SPLIT,         /* at the matches of `pattern`, as `delimiter` says */
    STEP_REPLACE,       /* each match of `pattern` by `string` */
    STEP_PREPEND,       /* `string`, as `when` says */
    STEP_NORMALIZE,     /* to the Unicode form `form` */
    STEP_NAME_BYTES,    /* each byte becomes the character that stands for it */
    STEP_UNNAME_BYTES,  /* and back; a text with another character stays as it is */
    STEP_BYTE_FALLBACK, /* the text <0x0A> becomes that byte */
    STEP_STRIP,         /* up to `left` times `string` at the begin, `right` times at the end */
} text_step_kind;

/* What becomes of a match: a piece by itself, part of the piece before or after, none; or pieces of
 * matches alone and of what is between them. */
typedef enum text_delimiter {
    DELIMITER_ISOLATED,
    DELIMITER_REMOVED,
    DELIMITER_TO_PREVIOUS,
    DELIMITER_TO_NEXT,
    DELIMITER_CONTIGUOUS,
} text_delimiter;

typedef enum text_when { WHEN_ALWAYS, WHEN_NOT_THERE, WHEN_NOT_THERE_AND_FIRST } text_when;

typedef struct text_step {
    text_step_kind kind;
    text_pattern *pattern;
    text_delimiter delimiter;
    int inverted; /* matches are what is between matches, and the other way round */
    char *string;
    text_when when;
    int form; /* options of utf8proc_map */
    size_t left, right;
} text_step;

/* Zeros: none. */
typedef struct text_steps {
    text_step step[TEXT_MOST_STEPS];
    size_t n;
} text_steps;

/* One more step, which has the pattern and a copy of the string (NULL: none). Whatever happens, the
 * pattern is no longer the caller's. `part` is what messages are about. */
int text_steps_add(text_steps *steps, const text_part *part, text_step step, dcp_error *err);
void text_steps_close(text_steps *steps);

/* Some bytes of a text; whether they are its first. */
typedef struct text_piece {
    const char *text;
    size_t bytes;
    int is_first;
} text_piece;

typedef int (*text_piece_fn)(void *ctx, text_piece piece, dcp_error *err);

/* Doing the steps: memory for what they write, and who takes the pieces that come out. One thread
 * at a time. */
typedef struct text_run {
    const text_steps *steps;
    text_piece_fn take;
    void *ctx;
    pcre2_match_data *found;
    text_buffer written[TEXT_MOST_STEPS];
} text_run;

int text_run_open(text_run *run, const text_steps *steps, text_piece_fn take, void *ctx,
                  dcp_error *err);
void text_run_close(text_run *run);

/* Valid UTF-8, unless all steps are about single bytes. Pieces without bytes are left out. */
int text_run_do(text_run *run, text_piece piece, dcp_error *err);
