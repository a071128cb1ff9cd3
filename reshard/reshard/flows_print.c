/* The plan of a reshard as a table and as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "programs/program.h"
#include "reshard/flows.h"

void flows_file(dcp_layout layout, int rank, int world, char *name) {
    if (layout == DCP_LAYOUT_GLOBAL)
        snprintf(name, 64, "state.h5");
    else
        snprintf(name, 64, "shard-%05d-of-%05d.h5", rank, world);
}

static const char *layout_name(dcp_layout layout) {
    return layout == DCP_LAYOUT_GLOBAL ? "global" : "sharded";
}

static void print_row(const char *rank, const flow_rank *r, const char *file) {
    char read[32], written[32], moved[32];
    printf("%5s %10s %10s %10s  %s\n", rank, program_bytes_text(r->read, read),
           program_bytes_text(r->written, written), program_bytes_text(r->moved, moved), file);
}

void flows_print(const flows *f, const flows_labels *l) {
    char rank[16], file[64];
    printf("read %s: %s, %d file%s\n", l->src, layout_name(l->old_layout), f->old,
           f->old == 1 ? "" : "s");
    printf("write %s: %s, ", l->dst, layout_name(l->new_layout));
    if (l->new_layout == DCP_LAYOUT_GLOBAL)
        printf("1 file, by %d process%s\n\n", l->processes, l->processes == 1 ? "" : "es");
    else
        printf("%d file%s%s%s, by %d process%s\n\n", f->new, f->new == 1 ? "" : "s",
               l->mesh ? " of the mesh " : "", l->mesh ? l->mesh : "", l->processes,
               l->processes == 1 ? "" : "es");
    printf("%5s %10s %10s %10s  %s\n", "rank", "read", "written", "moved", "writes");
    for (int r = 0; r < f->old || r < f->new; r++) {
        snprintf(rank, sizeof rank, "%d", r);
        flows_file(l->new_layout, r, f->new, file);
        print_row(rank, &f->ranks[r], r < f->new ? file : "");
    }
    print_row("all", &f->total, "");
    printf(
        "\nread: bytes of the old rank's file. moved: of what the new rank's file gets, what lay "
        "with another old rank.\n");
}

static json_t *rank_json(const flows *f, const flows_labels *l, int r) {
    char file[64];
    const flow_rank *of = &f->ranks[r];
    json_t *row = json_pack("{s:i, s:I, s:I, s:I}", "rank", r, "read", (json_int_t)of->read,
                            "written", (json_int_t)of->written, "moved", (json_int_t)of->moved);
    if (r >= f->new || !row) return row;
    flows_file(l->new_layout, r, f->new, file);
    json_object_set_new(row, "file", json_string(file));
    json_object_set_new(row, "process", json_integer(r % l->processes));
    return row;
}

static json_t *side_json(const char *path, dcp_layout layout, int ranks, const char *axes) {
    json_t *side =
        json_pack("{s:s, s:s, s:i}", "path", path, "layout", layout_name(layout), "ranks", ranks);
    if (axes) json_object_set_new(side, "mesh", json_string(axes));
    return side;
}

json_t *flows_json(const flows *f, const flows_labels *l) {
    json_t *ranks = json_array(), *list = json_array();
    for (int r = 0; r < f->old || r < f->new; r++) json_array_append_new(ranks, rank_json(f, l, r));
    for (size_t i = 0; i < f->n; i++)
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:I}", "from", f->list[i].from, "to",
                                        f->list[i].to, "bytes", (json_int_t)f->list[i].bytes));
    return json_pack("{s:I, s:o, s:o, s:I, s:I, s:o, s:o}", "step", (json_int_t)l->step, "from",
                     side_json(l->src, l->old_layout, f->old, NULL), "to",
                     side_json(l->dst, l->new_layout, f->new, l->mesh), "bytes",
                     (json_int_t)f->total.written, "moved", (json_int_t)f->total.moved, "ranks",
                     ranks, "flows", list);
}
