/* One file of recordings: its lists, and whether what it holds is what the model takes. */
#pragma once

#include "data/record_files.h"

/* What to do about a file that is not so. */
#define SPEECH_FILE_ANEW "make it anew with examples/talker/to_records.py"

/* Lists of where each record begins. */
typedef enum speech_list { SPEECH_TEXT, SPEECH_FRAMES } speech_list;

/* A record_file_read. ctx: the sample_shape that its records have to fit. */
int data_speech_file_read(void *ctx, record_file *file, dcp_error *err);

/* Ids or frames of the file's record of that number. */
uint64_t data_speech_file_length(const record_file *file, speech_list which, uint64_t own);
