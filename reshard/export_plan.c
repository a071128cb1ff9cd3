/* Which tensors go out, as what, and into which file; and their way out in bounded memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "export.h"
#include "pieces.h"

#define SECTION "/model/"
#define PIECE_BYTES (16u << 20) /* several of the checkpoint's 4 MiB blocks */

static void assign_files(export_plan *plan, uint64_t max_file_bytes) {
    uint64_t filled = 0;
    plan->files = 1;
    for (size_t i = 0; i < plan->n; i++) {
        uint64_t bytes = dcp_tensor_bytes(&plan->items[i].tensor);
        if (filled && bytes > max_file_bytes - filled) {
            plan->files++;
            filled = 0;
        }
        plan->items[i].file = plan->files - 1;
        filled += bytes < max_file_bytes - filled ? bytes : max_file_bytes - filled;
        plan->bytes += bytes;
    }
}

int export_plan_make(dcp_checkpoint *ckpt, int cast, dcp_dtype to, uint64_t max_file_bytes,
                     export_plan *out) {
    size_t tensors = dcp_checkpoint_tensors(ckpt);
    export_plan plan = {.items = calloc(tensors + 1, sizeof *plan.items)};
    if (!plan.items) return cli_fail(CLI_FAILED, "out of memory");
    for (size_t i = 0; i < tensors; i++) {
        const dcp_tensor *tensor = dcp_checkpoint_tensor(ckpt, i);
        if (strncmp(tensor->path, SECTION, strlen(SECTION))) continue;
        export_item *item = &plan.items[plan.n++];
        *item = (export_item){.source = tensor->path, .stored = tensor->dtype, .tensor = *tensor};
        item->tensor.path += strlen(SECTION);
        if (cast && convert_is_float(tensor->dtype)) item->tensor.dtype = to;
    }
    if (plan.n == 0) {
        free(plan.items);
        return cli_fail(CLI_USAGE, "%s: has no tensor under %s: nothing to export",
                        dcp_checkpoint_path(ckpt), SECTION);
    }
    assign_files(&plan, max_file_bytes);
    *out = plan;
    return 0;
}

void export_plan_free(export_plan *plan) { free(plan->items); }

const char *export_file_name(const export_plan *plan, size_t file, char *name) {
    if (plan->files == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", file + 1, plan->files);
    return name;
}

typedef struct stream {
    dcp_checkpoint *ckpt;
    const dcp_tensor *stored, *as;
    void *in, *out; /* equal where nothing is converted */
} stream;

static int pass_pieces(const stream *s, uint64_t piece_elems, export_sink sink, void *ctx) {
    dcp_box whole = dcp_box_whole(s->stored), piece;
    uint64_t elems = dcp_box_elems(&whole, s->stored->ndim);
    for (uint64_t first = 0; first < elems;) {
        dcp_error err = {0};
        if (cli_caught())
            return cli_fail(CLI_FAILED, "stopped by a signal: nothing is left behind");
        uint64_t n = pieces_next(&whole, s->stored->ndim, first, piece_elems, &piece);
        if (dcp_checkpoint_read(s->ckpt, s->stored->path, &piece, s->in, &err))
            return cli_report(&err);
        if (s->out != s->in) dcp_convert(s->stored->dtype, s->in, s->as->dtype, s->out, n);
        int status = sink(ctx, &piece, s->out, n * dcp_dtype_bytes(s->as->dtype));
        if (status) return status;
        first += n;
    }
    return 0;
}

int export_stream(dcp_checkpoint *ckpt, const char *source, const dcp_tensor *as, export_sink sink,
                  void *ctx) {
    stream s = {.ckpt = ckpt, .stored = dcp_checkpoint_find(ckpt, source), .as = as};
    uint64_t piece_elems = PIECE_BYTES / dcp_dtype_bytes(s.stored->dtype);
    int status = 0;
    s.in = malloc(PIECE_BYTES);
    s.out = as->dtype == s.stored->dtype ? s.in : malloc(piece_elems * dcp_dtype_bytes(as->dtype));
    if (s.in && s.out)
        status = pass_pieces(&s, piece_elems, sink, ctx);
    else
        status = cli_fail(CLI_FAILED, "out of memory");
    if (s.out != s.in) free(s.out);
    free(s.in);
    return status;
}
