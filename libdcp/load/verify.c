/* Checking every byte of a step: user block, tables, what lies between tensors, every block of
 * every tensor, about.json, and for shards that together they are the state they claim to be. Goes
 * on after a damage, so that all of it is reported.
 *
 * Every rank reads all tables and a part of the files, on several threads. The sums of all ranks
 * are joined; rank 0 judges them, and it alone speaks. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "io/sweep.h"
#include "load/checkpoint.h"
#include "load/tally.h"
#include "plan/plan.h"
#include "redundancy/redundancy.h"
#include "store/about.h"

typedef struct verifier {
    dcp_comm *comm;
    const dcp_verify_options *options;
    dcp_checkpoint *ckpt;
    const char *path; /* the step's folder */
    tally *sums;
    uint64_t file_bytes, redundancy_bytes, done, damages;
    int usable;  /* the tables are right and fit together */
    int is_part; /* the folder of a private store keeps some of the step's shards */
} verifier;

static void damage(verifier *v, const char *what) {
    v->damages++;
    if (v->comm->rank == 0 && v->options->on_damage) v->options->on_damage(v->options->ctx, what);
}

static void progress(verifier *v, uint64_t bytes) {
    v->done += bytes;
    if (v->comm->rank == 0 && v->options->on_progress)
        v->options->on_progress(v->options->ctx, v->done, v->file_bytes + v->redundancy_bytes);
}

/* A failure that is damage is reported, another one ends the check. */
static int absorb(verifier *v, int status, const dcp_error *e) {
    if (status != DCP_ERR_CORRUPT && status != DCP_ERR_VERSION) return status;
    damage(v, e->message);
    return DCP_OK;
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
        if (status) *usable = 0;
        status = absorb(v, status, &e);
        if (status && err) *err = e;
        if (status) return status;
        v->file_bytes += file->ub.file_bytes;
    }
    return DCP_OK;
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

/* All shards beside state.h5: one of the two is foreign, and a load takes the latter. */
static void check_one_layout(verifier *v, const char *path) {
    char line[PATH_MAX + 96];
    int world = 0, *here = NULL;
    size_t n = 0;
    if (v->ckpt->layout != DCP_LAYOUT_GLOBAL || step_world(path, INT_MAX, &world, NULL)) return;
    if (!world || step_shards(path, world, &here, &n, NULL)) return;
    free(here);
    if (n < (size_t)world) return;
    snprintf(line, sizeof line, "%.4095s: holds both state.h5 and shards of %d ranks", path, world);
    damage(v, line);
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
    if (status) return absorb(v, status, &e);
    check_one_layout(v, path);
    return make_files(ckpt, n, err);
}

/* The blocks of files that are not joined to a step. */
static void number_blocks(dcp_checkpoint *ckpt) {
    for (size_t f = 0; f < ckpt->n_files; f++) {
        ckpt->files[f].first_block = ckpt->blocks;
        if (ckpt->files[f].path) ckpt->blocks += ckpt->files[f].ub.blocks.bytes / 8;
    }
}

static void on_surplus(void *ctx, const char *name) {
    char line[PATH_MAX + 400];
    verifier *v = ctx;
    snprintf(line, sizeof line, "%.4095s/%.255s: surplus: it is no part of the step", v->path,
             name);
    damage(v, line);
}

/* The files' tables, and whether they fit together. */
static int read_step(verifier *v, const char *path, dcp_error *err) {
    dcp_error e;
    int status = find_files(v, path, err);
    if (status || !v->ckpt->files) return status;
    v->path = path;
    step_surplus(path, v->ckpt->layout, v->ckpt->n_files, on_surplus, v);
    status = read_files(v, &v->usable, err);
    if (status || !v->usable) return status;
    status = v->is_part ? checkpoint_metas(v->ckpt, &e) : checkpoint_join(v->ckpt, &e);
    v->usable = !status;
    if (status && status != DCP_ERR_CORRUPT && err) *err = e;
    if (status) return absorb(v, status, &e);
    if (v->is_part) number_blocks(v->ckpt);
    return tally_create(v->ckpt, &v->sums, err);
}

static void on_swept(void *ctx, uint64_t done) {
    verifier *v = ctx;
    uint64_t all = done * (uint64_t)v->comm->size; /* the others are about as far */
    if (all > v->file_bytes) all = v->file_bytes;
    if (all > v->done) progress(v, all - v->done);
}

static void add_chunk(void *ctx, size_t file, uint64_t offset, const unsigned char *data,
                      uint64_t bytes) {
    tally_add(((verifier *)ctx)->sums, file, offset, data, bytes);
}

/* Reads this rank's part of all files. */
static int read_part(verifier *v, dcp_error *err) {
    const dcp_checkpoint *ckpt = v->ckpt;
    sweep_file *files = calloc(ckpt->n_files + 1, sizeof *files);
    if (!files) return core_fail_memory(err, ckpt->n_files * sizeof *files);
    for (size_t f = 0; f < ckpt->n_files; f++)
        if (ckpt->files[f].path)
            files[f] = (sweep_file){ckpt->files[f].path, ckpt->files[f].ub.file_bytes};
    const sweep s = {.files = files,
                     .n = ckpt->n_files,
                     .rank = v->comm->rank,
                     .size = v->comm->size,
                     .threads = sweep_cores(v->comm->size),
                     .fn = add_chunk,
                     .on_read = on_swept,
                     .ctx = v};
    int status = sweep_run(&s, err);
    free(files);
    return status;
}

/* Sums are only joined of the same files. */
static int agree_on_files(verifier *v, dcp_error *err) {
    uint64_t tables = ~0ULL;
    for (size_t f = 0; f < v->ckpt->n_files; f++) {
        const userblock *ub = &v->ckpt->files[f].ub;
        const uint64_t said[] = {ub->file_bytes, ub->index.crc, ub->blocks.crc, ub->meta.crc};
        tables = crc64_raw(tables, said, sizeof said);
    }
    const plan_value values[] = {{"the number of the step's files", v->ckpt->n_files, 0},
                                 {"whether the tables are right", (uint64_t)v->usable, 0},
                                 {"the files' tables", v->usable ? tables : 0, 1}};
    return plan_same(v->comm, values, sizeof values / sizeof *values, err);
}

/* Collective. */
static int sum_files(verifier *v, dcp_error *err) {
    uint64_t n;
    int status = agree_on_files(v, err);
    if (status || !v->usable) return status;
    status = comm_agree(v->comm, read_part(v, err), err);
    if (status) return status;
    uint64_t *sums = tally_sums(v->sums, &n);
    return comm_allreduce(v->comm, sums, n, DCP_REDUCE_XOR, err);
}

static void report_block(verifier *v, const ckpt_piece *p, uint64_t b, uint64_t bytes) {
    char line[DCP_MAX_PATH + 4200];
    snprintf(line, sizeof line, "%s: tensor %s, block %llu (bytes %llu to %llu): damaged",
             p->file->path, p->row->tensor.path, (unsigned long long)b,
             (unsigned long long)(b * BLOCK_BYTES), (unsigned long long)(b * BLOCK_BYTES + bytes));
    damage(v, line);
}

/* One dataset, whose bytes were summed. */
static void judge_dataset(verifier *v, const ckpt_piece *p) {
    const uint64_t *crcs = p->file->crcs + p->row->first_block;
    for (uint64_t b = 0; b < index_blocks(p->row->bytes); b++)
        if (tally_block(v->sums, p->file, p->row, b) != crcs[b])
            report_block(v, p, b, index_block_bytes(p->row->bytes, b));
    if (index_join_blocks(crcs, p->row->bytes) != p->row->crc) {
        char line[DCP_MAX_PATH + 4200];
        snprintf(line, sizeof line, "%s: index: tensor %s: its checksum is not that of its blocks",
                 p->file->path, p->row->tensor.path);
        damage(v, line);
    }
}

/* Another version of HDF5 may have written it, so this is no damage. */
static int verify_origin(verifier *v, const ckpt_file *file, dcp_error *err) {
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

static int judge_outside(verifier *v, const ckpt_file *file, dcp_error *err) {
    if (tally_outside(v->sums, file) == file->ub.outside_crc) return verify_origin(v, file, err);
    char line[4300];
    snprintf(line, sizeof line,
             "%s: HDF5 metadata or padding: bytes outside the tensors and tables are damaged",
             file->path);
    damage(v, line);
    return DCP_OK;
}

/* All tensors; for shards also the state id, which no single file can prove. */
static void judge_tensors(verifier *v) {
    const dcp_checkpoint *ckpt = v->ckpt;
    uint64_t id = ~0ULL, before = v->damages;
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const ckpt_tensor *t = &ckpt->tensors[i];
        for (size_t k = 0; k < t->n_pieces; k++)
            judge_dataset(v, &ckpt->pieces[t->first_piece + k]);
        if (ckpt->layout == DCP_LAYOUT_SHARDED)
            id = index_state_id(id, &t->tensor, tally_tensor(v->sums, i));
    }
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)~id);
    if (ckpt->layout == DCP_LAYOUT_SHARDED && v->damages == before && strcmp(text, ckpt->state_id))
        damage(v, "meta: the state id is not that of the tensors: shards of different states");
}

static int judge_files(verifier *v, dcp_error *err) {
    const dcp_checkpoint *ckpt = v->ckpt;
    int status = DCP_OK;
    for (size_t f = 0; f < ckpt->n_files && !status; f++)
        if (ckpt->files[f].path) status = judge_outside(v, &ckpt->files[f], err);
    if (status) return status;
    if (!v->is_part) judge_tensors(v);
    for (size_t f = 0; f < ckpt->n_files && v->is_part; f++)
        for (size_t i = 0; ckpt->files[f].path && i < ckpt->files[f].ub.rows; i++)
            judge_dataset(v, &(ckpt_piece){&ckpt->files[f], &ckpt->files[f].rows[i], 0});
    return DCP_OK;
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

/* Rank 0's part: what the sums say, and the small files. */
static int judge(verifier *v, const char *path, dcp_error *err) {
    if (v->comm->rank != 0) return DCP_OK;
    int status = v->usable ? judge_files(v, err) : DCP_OK;
    if (!status) status = verify_about(v, path, err);
    if (!status) status = verify_redundancy(v, path, err);
    return status;
}

static int check_step(verifier *v, const char *path, dcp_error *err) {
    int status = comm_agree(v->comm, read_step(v, path, err), err);
    if (!status) status = sum_files(v, err);
    if (!status) status = comm_agree(v->comm, judge(v, path, err), err);
    if (!status) status = comm_broadcast(v->comm, &v->damages, sizeof v->damages, 0, err);
    if (!status) progress(v, v->file_bytes + v->redundancy_bytes - v->done); /* others' as well */
    if (!status && v->damages)
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: %llu damages found", path,
                           (unsigned long long)v->damages);
    return status;
}

int dcp_verify_with(dcp_comm *comm, const char *path, const dcp_verify_options *options,
                    dcp_error *err) {
    static const dcp_verify_options none;
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_verify_with: a communicator is needed");
    verifier v = {
        .comm = comm, .options = options ? options : &none, .ckpt = calloc(1, sizeof *v.ckpt)};
    int status = DCP_OK;
    if (!path)
        status = core_fail(err, DCP_ERR_ARG, "dcp_verify: a path is needed");
    else if (!v.ckpt || !(v.ckpt->path = strdup(path)))
        status = core_fail_memory(err, PATH_MAX);
    status = comm_agree(comm, status, err);
    if (!status) {
        v.redundancy_bytes = redundancy_bytes(path);
        status = check_step(&v, path, err);
    }
    tally_destroy(v.sums);
    dcp_checkpoint_close(v.ckpt);
    return status;
}

int dcp_verify(const char *path, const dcp_verify_options *options, dcp_error *err) {
    dcp_comm *self;
    int status = dcp_comm_self(&self, err);
    if (status) return status;
    status = dcp_verify_with(self, path, options, err);
    dcp_comm_destroy(self);
    return status;
}
