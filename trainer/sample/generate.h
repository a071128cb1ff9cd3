/* dcp-train --sample: the model of a checkpoint continues a text, in one process, on the CPU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct sample_options {
    const char *text; /* the text to continue */
    bool ids;         /* the text and the output are token ids */
    /* A step's folder, or a directory of steps, whose newest intact step is used. */
    const char *ckpt;
    /* The maximum number of tokens to generate; 0: SAMPLE_TOKENS, or fewer if the model allows
     * fewer. */
    uint64_t tokens;
    double temperature; /* 0: always the most likely token */
    uint64_t seed;
} sample_options;

enum { SAMPLE_TOKENS = 100 };

/* Writes the continuation to stdout, token by token, up to the model's eos_token_id. Returns the
 * exit status, after a message if it is not PROGRAM_DONE. */
int sample_generate(const sample_options *o);
