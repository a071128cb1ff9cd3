#include "save/shard_boxes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"

size_t save_shard_boxes_measure(const save_request *r, const save_layout *plan, int number,
                                size_t *bytes) {
    size_t n = 0;
    for (size_t i = 0; i < plan->boxes.n; i++)
        if (plan->boxes.boxes[i].rank == number) {
            *bytes += strlen(r->sorted[plan->boxes.boxes[i].tensor]->tensor.path) + 24;
            n++;
        }
    for (size_t i = 0; i < r->n && number == 0; i++) {
        *bytes += strlen(r->sorted[i]->tensor.path) + 24;
        n++;
    }
    return n;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const save_shard_box *)a)->path, ((const save_shard_box *)b)->path);
}

/* Whether a component of the path ends in @digits: as a dataset or as a folder it could be in the
 * way of a piece's name. */
static int is_like_a_piece(const char *path) {
    for (const char *at = strchr(path, '@'); at; at = strchr(at + 1, '@')) {
        size_t digits = strspn(at + 1, "0123456789");
        if (digits && (!at[1 + digits] || at[1 + digits] == '/')) return 1;
    }
    return 0;
}

/* Names of datasets: the tensor's path, then path@1, path@2 for its further boxes in this shard. */
static int name_dataset(const char *path, size_t k, char *out, size_t *length, dcp_error *err) {
    if (is_like_a_piece(path))
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "tensor %s: layout sharded keeps names that end in @<digits> for the "
                         "pieces of a tensor: rename it",
                         path);
    if (k && strlen(path) + 12 > DCP_MAX_PATH)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "tensor %.80s...: layout sharded needs 12 bytes after its name for the "
                         "number of a piece: shorten it",
                         path);
    *length = (size_t)(k ? sprintf(out, "%s@%zu", path, k) : sprintf(out, "%s", path));
    return DCP_OK;
}

int save_shard_boxes_collect(const save_request *r, const save_layout *plan, int number,
                             save_shard_box *out, size_t *n_out, char *paths, dcp_error *err) {
    size_t n = 0, k = 0;
    for (size_t i = 0; i < plan->boxes.n; i++) {
        const plan_box *b = &plan->boxes.boxes[i];
        if (b->keeper && b->rank == number)
            out[n++] = (save_shard_box){b->tensor, b->box->box, b->box, NULL};
    }
    for (size_t i = 0; i < r->n && number == 0; i++)
        if (!r->sorted[i]->bytes)
            out[n++] = (save_shard_box){i, dcp_box_whole(&r->sorted[i]->tensor), NULL, NULL};
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        k = i && out[i - 1].tensor == out[i].tensor ? k + 1 : 0;
        out[i].path = paths;
        int status = name_dataset(r->sorted[out[i].tensor]->tensor.path, k, paths, &length, err);
        if (status) return status;
        paths += length + 1;
    }
    qsort(out, n, sizeof *out, by_path);
    *n_out = n;
    return DCP_OK;
}
