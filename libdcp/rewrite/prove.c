/* What was written is what had been saved. A global file has its blocks' checksums; shards have the
 * state id, a checksum over those of whole tensors: where that differs, the old files' blocks are
 * looked through for the one to blame. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "step/read.h"
#include "rewrite/rewrite.h"

static int compare_blocks(const dcp_checkpoint *from, const step_tensor *t, const uint64_t *sums,
                          dcp_error *err) {
    const step_dataset *p = &from->pieces[t->first_piece];
    for (uint64_t b = 0; b < step_index_blocks(t->bytes); b++)
        if (core_crc64_finish(sums[b], step_index_block_bytes(t->bytes, b)) !=
            p->file->crcs[p->row->first_block + b])
            return core_fail(err, DCP_ERR_CORRUPT,
                             "%s: tensor %s, block %llu: what was read differs from what was saved",
                             p->file->path, t->tensor.path, (unsigned long long)b);
    return DCP_OK;
}

/* The state id of the new files' tensors. */
static int make_id(const dcp_checkpoint *from, const uint64_t *sums, char *id, dcp_error *err) {
    uint64_t raw = ~0ULL, *crcs = NULL;
    for (size_t i = 0; i < from->n_tensors; i++) {
        const step_tensor *t = &from->tensors[i];
        uint64_t blocks = step_index_blocks(t->bytes);
        uint64_t *grown = realloc(crcs, (blocks + 1) * sizeof *crcs);
        if (!grown) {
            free(crcs);
            return core_fail_memory(err, blocks * sizeof *crcs);
        }
        crcs = grown;
        for (uint64_t b = 0; b < blocks; b++)
            crcs[b] = core_crc64_finish(sums[b], step_index_block_bytes(t->bytes, b));
        raw = step_index_state_id(raw, &t->tensor, step_index_join_blocks(crcs, t->bytes));
        sums += blocks;
    }
    free(crcs);
    snprintf(id, 17, "%016llx", (unsigned long long)~raw);
    return DCP_OK;
}

static int find_damage(dcp_checkpoint *from, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < from->n_tensors && !status; i++)
        for (size_t k = 0; k < from->tensors[i].n_pieces && !status; k++) {
            const step_dataset *p = &from->pieces[from->tensors[i].first_piece + k];
            for (uint64_t b = 0; b < step_index_blocks(p->row->bytes) && !status; b++)
                status = step_read_block(from, p, b, err);
        }
    if (status) return status;
    return core_fail(err, DCP_ERR_CORRUPT,
                     "%s: meta: the state id is not that of the tensors: shards of different "
                     "states, or what was read once differs from what is read now",
                     from->path);
}

int rewrite_prove(void *ctx, const uint64_t *sums, dcp_error *err) {
    dcp_checkpoint *from = ((rewrite *)ctx)->from;
    char id[17];
    int status = DCP_OK;
    if (from->layout == DCP_LAYOUT_SHARDED) {
        status = make_id(from, sums, id, err);
        return status || !strcmp(id, from->state_id) ? status : find_damage(from, err);
    }
    for (size_t i = 0; i < from->n_tensors && !status; i++) {
        status = compare_blocks(from, &from->tensors[i], sums, err);
        sums += step_index_blocks(from->tensors[i].bytes);
    }
    return status;
}
