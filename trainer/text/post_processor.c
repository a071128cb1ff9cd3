/* Of TemplateProcessing only the form for one text is read; ByteLevel is about offsets. */
#include "text/post_processor.h"

#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "text/part.h"

typedef struct frame_reader {
    text_frame *frame;
    int32_t highest;
} frame_reader;

/* A list of ids grows at its end, or at its begin. */
static int put_ids(int32_t **list, size_t *n, const int32_t *ids, size_t more, int at_begin,
                   dcp_error *err) {
    int32_t *larger = realloc(*list, (*n + more + 1) * sizeof **list);
    if (!larger) return core_fail_memory(err, (*n + more) * sizeof **list);
    *list = larger;
    if (at_begin) memmove(larger + more, larger, *n * sizeof *larger);
    if (more) memcpy(larger + (at_begin ? 0 : *n), ids, more * sizeof *larger);
    *n += more;
    return DCP_OK;
}

/* The ids of special_tokens' member. */
static int put_special(const frame_reader *r, const text_part *part, const char *name,
                       int32_t **list, size_t *n, dcp_error *err) {
    const json_t *token = json_object_get(json_object_get(part->value, "special_tokens"), name);
    const json_t *ids = json_object_get(token, "ids");
    int status = DCP_OK;
    if (!json_is_array(ids))
        return text_part_fail(part, DCP_ERR_ARG, err, "special_tokens has no ids for %s", name);
    for (size_t i = 0; i < json_array_size(ids) && !status; i++) {
        const json_int_t value = json_integer_value(json_array_get(ids, i));
        const int32_t id = (int32_t)value;
        if (!json_is_integer(json_array_get(ids, i)) || value < 0 || value > r->highest)
            return text_part_fail(part, DCP_ERR_ARG, err,
                                  "an id of %s is not an integer of 0 to %d, the highest token's",
                                  name, r->highest);
        status = put_ids(list, n, &id, 1, 0, err);
    }
    return status;
}

/* One item of a template, into `own`; *has_text: the text itself came already. */
static int read_item(const frame_reader *r, const text_part *part, const json_t *item,
                     text_frame *own, int *has_text, dcp_error *err) {
    const char *special =
        json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
    const char *sequence =
        json_string_value(json_object_get(json_object_get(item, "Sequence"), "id"));
    if (special && *has_text) return put_special(r, part, special, &own->after, &own->n_after, err);
    if (special) return put_special(r, part, special, &own->before, &own->n_before, err);
    if (!sequence || strcmp(sequence, "A") != 0 || *has_text)
        return text_part_fail(part, DCP_ERR_ARG, err,
                              "single is not special tokens and one sequence A");
    *has_text = 1;
    return DCP_OK;
}

static int read_template(const frame_reader *r, const text_part *part, dcp_error *err) {
    const json_t *single = json_object_get(part->value, "single");
    text_frame own = {0}, *all = r->frame;
    int has_text = 0, status = DCP_OK;
    for (size_t i = 0; i < json_array_size(single) && !status; i++)
        status = read_item(r, part, json_array_get(single, i), &own, &has_text, err);
    if (!status && !has_text)
        status = text_part_fail(part, DCP_ERR_ARG, err, "single is not a list with a sequence A");
    if (!status) status = put_ids(&all->before, &all->n_before, own.before, own.n_before, 1, err);
    if (!status) status = put_ids(&all->after, &all->n_after, own.after, own.n_after, 0, err);
    text_frame_free(&own);
    return status;
}

static int read_processor(void *ctx, const text_part *part, dcp_error *err) {
    if (!strcmp(part->type, "ByteLevel")) return DCP_OK;
    if (!strcmp(part->type, "TemplateProcessing")) return read_template(ctx, part, err);
    return text_part_fail(part, DCP_ERR_UNSUPPORTED, err,
                          "this type is not supported (only TemplateProcessing, ByteLevel, and "
                          "Sequence of them)");
}

int text_post_processor_read(const char *file, const json_t *value, int32_t highest,
                             text_frame *out, dcp_error *err) {
    const text_part part = {file, "post_processor", NULL, value};
    frame_reader reader = {out, highest};
    *out = (text_frame){0};
    return text_part_each(&part, "processors", read_processor, &reader, err);
}

void text_frame_free(text_frame *frame) {
    free(frame->before);
    free(frame->after);
}
