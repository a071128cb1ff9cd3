/* Values as text and as JSON, and which tensors a command is about. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include <dcp/checkpoint.h>
#include <dcp/inspect.h>

/* Which tensors a command is about: those that one of some globs matches. */

/* Whether a glob (fnmatch(3) without flags, so `*` is any text) matches the path, with or
 * without its first slash, or what follows "/model/" in it; no globs match all. matched[n], where
 * given, marks the globs that did. */
int inspect_filter_matches(char *const *globs, size_t n, const char *path, unsigned char *matched);

/* Marks in take[] the checkpoint's tensors that match. 0, or an exit status after a message:
 * PROGRAM_USAGE for a glob that matches none. */
int inspect_filter_tensors(const dcp_checkpoint *ckpt, char *const *globs, size_t n,
                           unsigned char *take);

/* Values as text and as JSON, for the commands of dcp-inspect. */

#define TEXT_PATH (DCP_MAX_PATH + 1)
#define TEXT_SHAPE 200

/* A name from a file as it may go to a terminal: control characters become '?'. */
const char *inspect_text_name(const char *name, char *text /* TEXT_PATH */);
/* Prints a line likewise. */
void inspect_text_print(const char *line);
/* "[4, 3]" */
const char *inspect_text_shape(const uint64_t *shape, uint32_t ndim, char *text /* TEXT_SHAPE */);
/* "1,234,567" into text[32]. */
const char *inspect_text_count(uint64_t n, char *text);
const char *inspect_text_layout(const dcp_checkpoint *ckpt);

json_t *inspect_shape_json(const uint64_t *shape, uint32_t ndim);
/* null where it is no finite number, which JSON has not. */
json_t *inspect_real_json(double value);
json_t *inspect_count_json(uint64_t n);
/* {"path", "dtype", "shape", "bytes"} */
json_t *inspect_tensor_json(const dcp_tensor *t);

/* {"path", "step", "layout", "files"} of a checkpoint. */
json_t *inspect_checkpoint_json(const dcp_checkpoint *ckpt);

/* Prints `root` on stdout and frees it. */
void inspect_text_print_json(json_t *root);
