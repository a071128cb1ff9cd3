#include "reader/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "format/hold.h"

int reader_checkpoint_make_files(dcp_checkpoint *ckpt, size_t n, dcp_error *err) {
    ckpt->files = calloc(n + 1, sizeof *ckpt->files);
    if (!ckpt->files) return core_fail_memory(err, n * sizeof *ckpt->files);
    ckpt->n_files = n;
    for (size_t i = 0; i < n; i++) {
        ckpt->files[i] = format_file_of(NULL);
        if (ckpt->layout == DCP_LAYOUT_SHARDED && ckpt->comm)
            ckpt->files[i].reader = (int)(i % (size_t)ckpt->comm->size);
        if (ckpt->hold) ckpt->files[i].folder = ckpt->hold->folder_fd;
    }
    return DCP_OK;
}

void reader_checkpoint_settle(dcp_checkpoint *ckpt) {
    if (ckpt->user) ckpt->user->settle(ckpt->user);
}

int reader_checkpoint_is_gone(const dcp_checkpoint *ckpt) {
    const format_hold *hold = ckpt->hold;
    return hold ? hold->is_claimed || !format_hold_is_named(hold) : ckpt->gone != 0;
}

const char *dcp_checkpoint_path(const dcp_checkpoint *ckpt) { return ckpt ? ckpt->path : NULL; }
uint64_t dcp_checkpoint_step(const dcp_checkpoint *ckpt) { return ckpt ? ckpt->step : 0; }
dcp_layout dcp_checkpoint_layout(const dcp_checkpoint *ckpt) {
    return ckpt ? ckpt->layout : DCP_LAYOUT_GLOBAL;
}
int dcp_checkpoint_files(const dcp_checkpoint *ckpt) { return ckpt ? (int)ckpt->n_files : 0; }
const char *dcp_checkpoint_json(const dcp_checkpoint *ckpt) { return ckpt ? ckpt->json : NULL; }
size_t dcp_checkpoint_tensors(const dcp_checkpoint *ckpt) { return ckpt ? ckpt->n_tensors : 0; }

const dcp_tensor *dcp_checkpoint_tensor(const dcp_checkpoint *ckpt, size_t i) {
    return i < dcp_checkpoint_tensors(ckpt) ? &ckpt->tensors[i].tensor : NULL;
}

static int by_tensor_path(const void *key, const void *tensor) {
    return strcmp(key, ((const reader_tensor *)tensor)->tensor.path);
}

const reader_tensor *reader_checkpoint_lookup(const dcp_checkpoint *ckpt, const char *path) {
    return bsearch(path, ckpt->tensors, ckpt->n_tensors, sizeof *ckpt->tensors, by_tensor_path);
}

size_t dcp_checkpoint_boxes(const dcp_checkpoint *ckpt, size_t i) {
    return i < dcp_checkpoint_tensors(ckpt) ? ckpt->tensors[i].n_datasets : 0;
}

const dcp_tensor *dcp_checkpoint_find(const dcp_checkpoint *ckpt, const char *path) {
    const reader_tensor *t = ckpt && path ? reader_checkpoint_lookup(ckpt, path) : NULL;
    return t ? &t->tensor : NULL;
}
