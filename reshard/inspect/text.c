#include "inspect/text.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/element.h"
#include "programs/program.h"

bool inspect_filter_matches(char *const *globs, size_t n, const char *path,
                            unsigned char *matched) {
    static const char model[] = "/model/";
    const char *name = strncmp(path, model, sizeof model - 1) ? NULL : path + sizeof model - 1;
    bool any = !n;
    for (size_t i = 0; i < n; i++)
        if (!fnmatch(globs[i], path, 0) || !fnmatch(globs[i], path + 1, 0) ||
            (name && !fnmatch(globs[i], name, 0))) {
            any = true;
            if (matched) matched[i] = 1;
        }
    return any;
}

int inspect_filter_tensors(const dcp_checkpoint *ckpt, char *const *globs, size_t n,
                           unsigned char *take) {
    unsigned char *matched = calloc(n + 1, 1);
    int status = matched ? 0 : program_no_memory();
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt) && !status; i++)
        take[i] = (unsigned char)inspect_filter_matches(
            globs, n, dcp_checkpoint_tensor(ckpt, i)->path, matched);
    for (size_t i = 0; i < n && !status; i++)
        if (!matched[i]) status = program_refuse("no tensor matches '%s'", globs[i]);
    free(matched);
    return status;
}

const char *inspect_text_name(const char *name, char *text) {
    size_t i = 0;
    for (; name[i] && i + 1 < TEXT_PATH; i++)
        text[i] = (unsigned char)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i];
    text[i] = 0;
    return text;
}

void inspect_text_print(const char *line) {
    for (; *line; line++) putchar((unsigned char)*line < ' ' || *line == 0x7f ? '?' : *line);
    putchar('\n');
}

const char *inspect_text_shape(const uint64_t *shape, uint32_t ndim, char *text) {
    size_t used = (size_t)snprintf(text, TEXT_SHAPE, "[");
    for (uint32_t d = 0; d < ndim; d++)
        used +=
            (size_t)snprintf(text + used, TEXT_SHAPE - used, "%s%" PRIu64, d ? ", " : "", shape[d]);
    snprintf(text + used, TEXT_SHAPE - used, "]");
    return text;
}

const char *inspect_text_count(uint64_t n, char *text) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n), used = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
    return text;
}

const char *inspect_text_layout(const dcp_checkpoint *ckpt) {
    return dcp_checkpoint_layout(ckpt) == DCP_LAYOUT_GLOBAL ? "global" : "sharded";
}

json_t *inspect_shape_json(const uint64_t *shape, uint32_t ndim) {
    json_t *array = json_array();
    for (uint32_t d = 0; d < ndim; d++) json_array_append_new(array, inspect_count_json(shape[d]));
    return array;
}

json_t *inspect_real_json(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *inspect_count_json(uint64_t n) { return json_integer((json_int_t)n); }

json_t *inspect_tensor_json(const dcp_tensor *t) {
    return json_pack("{s:s, s:s, s:o, s:o}", "path", t->path, "dtype", dcp_dtype_name(t->dtype),
                     "shape", inspect_shape_json(t->shape, t->ndim), "bytes",
                     inspect_count_json(dcp_tensor_bytes(t)));
}

json_t *inspect_checkpoint_json(const dcp_checkpoint *ckpt) {
    return json_pack("{s:s, s:o, s:s, s:i}", "path", dcp_checkpoint_path(ckpt), "step",
                     inspect_count_json(dcp_checkpoint_step(ckpt)), "layout",
                     inspect_text_layout(ckpt), "files", dcp_checkpoint_files(ckpt));
}

void inspect_text_print_json(json_t *root) {
    if (!root) exit(program_fail(PROGRAM_FAILED, "cannot print it as JSON: out of memory"));
    json_text_write(root, 0, stdout);
    json_decref(root);
}
