/* Checking every byte of a step: user block, tables, what lies between tensors, every block of
 * every tensor, about.json, and for shards that together they are the state they claim to be. Goes
 * on after a damage, so that all of it is reported. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy/piece.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "load/checkpoint.h"
#include "redundancy/redundancy.h"
#include "store/about.h"

typedef struct verifier {
    const dcp_verify_options *options;
    dcp_checkpoint *ckpt;
    unsigned char *buffer; /* BLOCK_BYTES */
    uint64_t done, total, damages;
    uint64_t *sums; /* of whole tensors' blocks, layout sharded */
    int is_part;    /* the folder of a private store keeps some of the step's shards */
} verifier;

static void damage(verifier *v, const char *what) {
    v->damages++;
    if (v->options && v->options->on_damage) v->options->on_damage(v->options->ctx, what);
}

static void progress(verifier *v, uint64_t bytes) {
    v->done += bytes;
    if (v->options && v->options->on_progress)
        v->options->on_progress(v->options->ctx, v->done, v->total);
}

/* A failure that is damage is reported, another one ends the check. */
static int absorb(verifier *v, int status, const dcp_error *e) {
    if (status != DCP_ERR_CORRUPT && status != DCP_ERR_VERSION) return status;
    damage(v, e->message);
    return DCP_OK;
}

static void report_block(verifier *v, const ckpt_piece *p, uint64_t b, uint64_t bytes) {
    char line[DCP_MAX_PATH + 4200];
    snprintf(line, sizeof line, "%s: tensor %s, block %llu (bytes %llu to %llu): damaged",
             p->file->path, p->row->tensor.path, (unsigned long long)b,
             (unsigned long long)(b * BLOCK_BYTES), (unsigned long long)(b * BLOCK_BYTES + bytes));
    damage(v, line);
}

/* One dataset; `whole` (layout sharded) adds its bytes to the tensor's checksums. */
static int verify_dataset(verifier *v, const ckpt_piece *p, const piece *whole, dcp_error *err) {
    const uint64_t *crcs = p->file->crcs + p->row->first_block;
    for (uint64_t b = 0; b < index_blocks(p->row->bytes); b++) {
        uint64_t bytes = index_block_bytes(p->row->bytes, b);
        int status = io_read_plain(p->file->plain, v->buffer, bytes,
                                   p->row->offset + b * BLOCK_BYTES, p->file->path, err);
        if (status) return status;
        if (crc64(v->buffer, bytes) != crcs[b]) report_block(v, p, b, bytes);
        if (whole) piece_sum(whole, b * BLOCK_BYTES, v->buffer, bytes);
        progress(v, bytes);
    }
    if (index_join_blocks(crcs, p->row->bytes) != p->row->crc) {
        char line[DCP_MAX_PATH + 4200];
        snprintf(line, sizeof line, "%s: index: tensor %s: its checksum is not that of its blocks",
                 p->file->path, p->row->tensor.path);
        damage(v, line);
    }
    return DCP_OK;
}

static void on_outside(void *ctx, uint64_t bytes) { progress(ctx, bytes); }

/* Another version of HDF5 may have written it, so this is no damage. */
static int verify_origin(verifier *v, const ckpt_file *file, dcp_error *err) {
    char line[4300];
    int ours = 1;
    if (!v->options || !v->options->on_note) return DCP_OK;
    int status = origin_check(file, &ours, err);
    if (status || ours) return status;
    snprintf(line, sizeof line,
             "%s: HDF5 metadata: not what this library writes for these tensors: another version "
             "of HDF5 wrote it, or it was changed on purpose; other programs may read other data",
             file->path);
    v->options->on_note(v->options->ctx, line);
    return DCP_OK;
}

static int verify_outside(verifier *v, const ckpt_file *file, dcp_error *err) {
    int intact = 0, status = outside_check(file, v->buffer, on_outside, v, &intact, err);
    if (status) return status;
    if (intact) return verify_origin(v, file, err);
    char line[4300];
    snprintf(line, sizeof line,
             "%s: HDF5 metadata or padding: bytes outside the tensors and tables are damaged",
             file->path);
    damage(v, line);
    return DCP_OK;
}

static int verify_tensor(verifier *v, const ckpt_tensor *t, uint64_t *sums, dcp_error *err) {
    const dcp_box all = dcp_box_whole(&t->tensor);
    int status = DCP_OK;
    for (size_t k = 0; k < t->n_pieces && !status; k++) {
        const ckpt_piece *p = &v->ckpt->pieces[t->first_piece + k];
        const dcp_box held = index_row_box(p->row);
        box_copy copy;
        piece whole = {.global = &copy, .global_bytes = t->bytes, .global_sums = sums};
        box_copy_between(&copy, t->tensor.ndim, dcp_dtype_bytes(t->tensor.dtype), &all, &held);
        status = verify_dataset(v, p, sums ? &whole : NULL, err);
    }
    return status;
}

/* All tensors; for shards also the state id, which no single file can prove. */
static int verify_tensors(verifier *v, dcp_error *err) {
    const dcp_checkpoint *ckpt = v->ckpt;
    int sharded = ckpt->layout == DCP_LAYOUT_SHARDED, status = DCP_OK;
    uint64_t id = ~0ULL, before = v->damages;
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++) {
        const ckpt_tensor *t = &ckpt->tensors[i];
        uint64_t blocks = index_blocks(t->bytes);
        uint64_t *sums = sharded ? calloc(blocks + 1, sizeof *sums) : NULL;
        if (sharded && !sums) return core_fail_memory(err, blocks * 8);
        status = verify_tensor(v, t, sums, err);
        for (uint64_t b = 0; sharded && b < blocks; b++)
            sums[b] = crc64_finish(sums[b], index_block_bytes(t->bytes, b));
        if (sharded) id = index_state_id(id, &t->tensor, index_join_blocks(sums, t->bytes));
        free(sums);
    }
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)~id);
    if (!status && sharded && v->damages == before && strcmp(text, ckpt->state_id))
        damage(v, "meta: the state id is not that of the tensors: shards of different states");
    return status;
}

/* Reads all files' tables; the damaged ones are reported. */
static int read_files(verifier *v, int *usable, dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    *usable = 1;
    for (size_t i = 0; i < ckpt->n_files; i++) {
        dcp_error e;
        ckpt_file *file = &ckpt->files[i];
        if (v->is_part && !file->path) continue;
        free(file->path);
        file->path = step_file_path(ckpt->path, ckpt->layout, i, ckpt->n_files);
        if (!file->path) return core_fail_memory(err, 4096);
        int status = tables_read(file, &e);
        if (!status) status = checkpoint_plain(file, &e);
        if (status) *usable = 0;
        status = absorb(v, status, &e);
        if (status && err) *err = e;
        if (status) return status;
        v->total += file->ub.file_bytes;
    }
    return DCP_OK;
}

/* What can be known of some shards: their own bytes, and that they are of one state. */
static int verify_alone(verifier *v, dcp_error *err) {
    dcp_error e;
    int status = checkpoint_metas(v->ckpt, &e);
    if (status && status != DCP_ERR_CORRUPT && err) *err = e;
    if (status) return absorb(v, status, &e);
    for (size_t f = 0; f < v->ckpt->n_files && !status; f++) {
        ckpt_file *file = &v->ckpt->files[f];
        if (!file->path) continue;
        status = verify_outside(v, file, err);
        for (size_t i = 0; i < file->ub.rows && !status; i++)
            status = verify_dataset(v, &(ckpt_piece){file, &file->rows[i], 0}, NULL, err);
    }
    return status;
}

static int verify_files(verifier *v, dcp_error *err) {
    int usable;
    dcp_error e;
    int status = read_files(v, &usable, err);
    if (status || !usable) return status;
    if (v->is_part) return verify_alone(v, err);
    status = checkpoint_join(v->ckpt, &e);
    if (status && status != DCP_ERR_CORRUPT && err) *err = e;
    if (status) return absorb(v, status, &e);
    for (size_t i = 0; i < v->ckpt->n_files && !status; i++)
        status = verify_outside(v, &v->ckpt->files[i], err);
    return status ? status : verify_tensors(v, err);
}

static int verify_about(verifier *v, const char *path, dcp_error *err) {
    dcp_error e;
    int status = about_check(path, v->ckpt->json ? &v->ckpt->step : NULL, &e);
    if (status == DCP_ERR_NOT_FOUND) status = DCP_ERR_CORRUPT;
    if (status && status != DCP_ERR_CORRUPT && err) *err = e;
    return absorb(v, status, &e);
}

static void on_redundancy_damage(void *v, const char *line) { damage(v, line); }

static void on_redundancy_read(void *v, uint64_t bytes) { progress(v, bytes); }

static int verify_redundancy(verifier *v, const char *path, dcp_error *err) {
    const redundancy_reader reader = {v, on_redundancy_damage, on_redundancy_read};
    return redundancy_verify(path, &reader, err);
}

static int make_files(dcp_checkpoint *ckpt, size_t n, dcp_error *err) {
    ckpt->files = calloc(n, sizeof *ckpt->files);
    if (!ckpt->files) return core_fail_memory(err, n * sizeof *ckpt->files);
    ckpt->n_files = n;
    for (size_t i = 0; i < n; i++) ckpt->files[i].file.fd = ckpt->files[i].plain = -1;
    return DCP_OK;
}

/* Files for the shards that the folder has; it should have those in kept[]. */
static int take_part(verifier *v, const char *path, int world, unsigned char *kept,
                     dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    int *here = NULL;
    size_t n = 0;
    int status = step_shards(path, world, &here, &n, err);
    if (status) return status;
    ckpt->layout = DCP_LAYOUT_SHARDED;
    status = make_files(ckpt, (size_t)world, err);
    for (size_t i = 0; i < n && !status; i++) {
        char *file = step_file_path(path, ckpt->layout, (size_t)here[i], ckpt->n_files);
        if (!file) status = core_fail_memory(err, PATH_MAX);
        ckpt->files[here[i]].path = file;
        kept[here[i]] = 0;
    }
    for (int f = 0; f < world && !status; f++) {
        char line[PATH_MAX + 64];
        snprintf(line, sizeof line, "%.4095s/shard-%05d-of-%05d.h5 is missing", path, f, world);
        if (kept[f]) damage(v, line);
    }
    free(here);
    return status;
}

/* A folder of a private store, where about.json says that it keeps but a part of the shards. */
static int find_part(verifier *v, const char *path, dcp_error *err) {
    int world = 0, status = DCP_OK;
    if (step_world(path, INT_MAX, &world, NULL) || !world) return DCP_OK;
    unsigned char *kept = malloc((size_t)world);
    if (!kept) return core_fail_memory(err, (uint64_t)world);
    v->is_part = about_is_part(path, world, kept);
    if (v->is_part) status = take_part(v, path, world, kept, err);
    free(kept);
    return status;
}

/* The step's files; none where it lacks some, which is told. */
static int find_files(verifier *v, const char *path, dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    dcp_error e;
    size_t n;
    int status = step_files(path, &n, &ckpt->layout, &e);
    if (status == DCP_ERR_CORRUPT) {
        int found = find_part(v, path, err);
        if (found || v->is_part) return found;
    }
    if (status && status != DCP_ERR_CORRUPT && err) *err = e;
    return status ? absorb(v, status, &e) : make_files(ckpt, n, err);
}

int dcp_verify(const char *path, const dcp_verify_options *options, dcp_error *err) {
    if (!path) return core_fail(err, DCP_ERR_ARG, "dcp_verify: a path is needed");
    dcp_checkpoint *ckpt = calloc(1, sizeof *ckpt);
    verifier v = {.options = options,
                  .ckpt = ckpt,
                  .buffer = malloc(BLOCK_BYTES),
                  .total = redundancy_bytes(path)};
    int status = DCP_OK;
    if (!ckpt || !v.buffer || !(ckpt->path = strdup(path))) {
        status = core_fail_memory(err, BLOCK_BYTES);
        goto free_all;
    }
    status = find_files(&v, path, err);
    if (!status && ckpt->files) status = verify_files(&v, err);
    if (!status) status = verify_about(&v, path, err);
    if (!status) status = verify_redundancy(&v, path, err);
    if (!status && v.damages)
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: %llu damages found", path,
                           (unsigned long long)v.damages);
free_all:
    dcp_checkpoint_close(ckpt);
    free(v.buffer);
    return status;
}
