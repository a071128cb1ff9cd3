/* What the sums of a step's bytes say: of each block, of each tensor, of what lies between them,
 * and for shards of the state that they claim to be. */
#include <stdio.h>
#include <string.h>

#include "core/fail.h"
#include "load/origin.h"
#include "load/verify.h"

static void report_block(verifier *v, const step_dataset *p, uint64_t b, uint64_t bytes) {
    char line[DCP_MAX_PATH + 4200];
    snprintf(line, sizeof line, "%s: tensor %s, block %llu (bytes %llu to %llu): damaged",
             p->file->path, p->row->tensor.path, (unsigned long long)b,
             (unsigned long long)(b * BLOCK_BYTES), (unsigned long long)(b * BLOCK_BYTES + bytes));
    verify_damage(v, line);
}

/* One dataset, whose bytes were summed. */
static void judge_dataset(verifier *v, const step_dataset *p) {
    const uint64_t *crcs = p->file->crcs + p->row->first_block;
    for (uint64_t b = 0; b < step_index_blocks(p->row->bytes); b++)
        if (tally_block(v->sums, p->file, p->row, b) != crcs[b])
            report_block(v, p, b, step_index_block_bytes(p->row->bytes, b));
    if (step_index_join_blocks(crcs, p->row->bytes) != p->row->crc) {
        char line[DCP_MAX_PATH + 4200];
        snprintf(line, sizeof line, "%s: index: tensor %s: its checksum is not that of its blocks",
                 p->file->path, p->row->tensor.path);
        verify_damage(v, line);
    }
}

/* Another version of HDF5 may have written it, so this is no damage. */
static int verify_origin(verifier *v, const step_file *file, dcp_error *err) {
    char line[4300];
    int ours = 1;
    if (!v->options->on_note) return DCP_OK;
    int status = origin_check(file, &ours, err);
    if (status || ours) return status;
    snprintf(line, sizeof line,
             "%s: HDF5 metadata: not what this library writes for these tensors: another version "
             "of HDF5 wrote it, or it was changed on purpose; other programs may read other data",
             file->path);
    v->options->on_note(v->options->ctx, line);
    return DCP_OK;
}

static int judge_outside(verifier *v, const step_file *file, dcp_error *err) {
    if (tally_outside(v->sums, file) == file->ub.outside_crc) return verify_origin(v, file, err);
    char line[4300];
    snprintf(line, sizeof line,
             "%s: HDF5 metadata or padding: bytes outside the tensors and tables are damaged",
             file->path);
    verify_damage(v, line);
    return DCP_OK;
}

/* All tensors; for shards also the state id, which no single file can prove. */
static void judge_tensors(verifier *v) {
    const dcp_checkpoint *ckpt = v->ckpt;
    uint64_t id = ~0ULL, before = v->damages;
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const step_tensor *t = &ckpt->tensors[i];
        for (size_t k = 0; k < t->n_pieces; k++)
            judge_dataset(v, &ckpt->pieces[t->first_piece + k]);
        if (ckpt->layout == DCP_LAYOUT_SHARDED)
            id = step_index_state_id(id, &t->tensor, tally_tensor(v->sums, i));
    }
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)~id);
    if (ckpt->layout == DCP_LAYOUT_SHARDED && v->damages == before && strcmp(text, ckpt->state_id))
        verify_damage(v,
                      "meta: the state id is not that of the tensors: shards of different states");
}

int verify_judge(verifier *v, dcp_error *err) {
    const dcp_checkpoint *ckpt = v->ckpt;
    int status = DCP_OK;
    for (size_t f = 0; f < ckpt->n_files && !status; f++)
        if (ckpt->files[f].path) status = judge_outside(v, &ckpt->files[f], err);
    if (status) return status;
    if (!v->is_part) judge_tensors(v);
    for (size_t f = 0; f < ckpt->n_files && v->is_part; f++)
        for (size_t i = 0; ckpt->files[f].path && i < ckpt->files[f].ub.rows; i++)
            judge_dataset(v, &(step_dataset){&ckpt->files[f], &ckpt->files[f].rows[i], 0});
    return DCP_OK;
}
