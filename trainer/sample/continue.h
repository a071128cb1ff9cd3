/* dcp-train --sample: a text is continued by the model of a checkpoint, in one process, on the CPU.
 */
#pragma once

#include <stdint.h>

typedef struct sample_options {
    const char *text;   /* what is continued */
    int ids;            /* the text, and what is written, are token ids */
    const char *ckpt;   /* a step's folder, or a directory of steps: the newest intact one */
    uint64_t tokens;    /* that follow, at most; 0: SAMPLE_TOKENS, or as many as the model sees */
    double temperature; /* 0: always the likeliest token */
    uint64_t seed;
} sample_options;

enum { SAMPLE_TOKENS = 100 };

/* Writes what follows the text to stdout, token by token, up to the model's eos_token_id. Returns
 * the status to exit with, after a message where it is not PROGRAM_DONE. */
int sample_continue(const sample_options *o);
