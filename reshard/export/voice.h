/* A voice that a talker was tuned on, as a folder of fixed voices has it: a speaker's vector in a
 * row of the talker's table of codes, and its name in config.json. */
#pragma once

#include "export/contents.h"

typedef struct export_voice {
    char name[64]; /* as it is looked up: in lower case */
    uint64_t row;
    float *vector;
    size_t item; /* of the contents: the table */
} export_voice;

/* Reads the one speaker of `file`, which examples/talker/to_records.py made, and finds a row. An
 * exit status. */
int export_voice_open(const dcp_checkpoint *ckpt, const export_contents *contents, const char *name,
                      const char *file, export_voice *out);
void export_voice_close(export_voice *voice);

/* Into the exported config.json. */
void export_voice_name(const export_voice *voice, json_t *config);

/* Into the exported file, whose tensors are written. An exit status. */
int export_voice_write(const export_voice *voice, const export_contents *contents, const char *dir);
