/* Values as text and as JSON, and the selection of the tensors that a command handles. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <dcp/checkpoint.h>
#include <dcp/inspect.h>

/* The selection of the tensors that a command handles: the tensors that match one of several
 * globs. */

/* Returns true if a glob matches the path, the path without its first slash, or the part after
 * "/model/". A glob is matched by fnmatch(3) without flags, so `*` matches any text. Without globs,
 * every path matches. If `matched` is not NULL, sets matched[i] for each glob that matched. */
bool inspect_filter_matches(char *const *globs, size_t n, const char *path, unsigned char *matched);

/* Marks the checkpoint's matching tensors in take[]. Returns 0, or an exit status after a message:
 * PROGRAM_USAGE if a glob matches no tensor. */
int inspect_filter_tensors(const dcp_checkpoint *ckpt, char *const *globs, size_t n,
                           unsigned char *take);

/* Values as text and as JSON, for the commands of dcp-inspect. */

#define TEXT_PATH (DCP_MAX_PATH + 1)
#define TEXT_SHAPE 200

/* Returns a name from a file in a form that is safe for a terminal: control characters become
 * '?'. */
const char *inspect_text_name(const char *name, char *text /* TEXT_PATH */);
/* Prints a line in the same safe form. */
void inspect_text_print(const char *line);
/* Writes the shape, such as "[4, 3]". */
const char *inspect_text_shape(const uint64_t *shape, uint32_t ndim, char *text /* TEXT_SHAPE */);
/* Writes the number, such as "1,234,567", into text[32]. */
const char *inspect_text_count(uint64_t n, char *text);
const char *inspect_text_layout(const dcp_checkpoint *ckpt);

json_t *inspect_shape_json(const uint64_t *shape, uint32_t ndim);
/* Returns the number as JSON; null for NaN and infinity, which JSON does not have. */
json_t *inspect_real_json(double value);
json_t *inspect_count_json(uint64_t n);
/* Returns an object with the members "path", "dtype", "shape" and "bytes". */
json_t *inspect_tensor_json(const dcp_tensor *t);

/* Returns an object with the members "path", "step", "layout" and "files". */
json_t *inspect_checkpoint_json(const dcp_checkpoint *ckpt);

/* Prints `root` on stdout and frees it. */
void inspect_text_print_json(json_t *root);
