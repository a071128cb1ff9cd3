/* Checking every byte of a step: user block, tables, what lies between tensors, every block of
 * every tensor, about.json, and for shards that together they are the state they claim to be. Goes
 * on after a damage, so that all of it is reported.
 *
 * Every rank reads all tables and a part of the files, on several threads. The sums of all ranks
 * are joined; rank 0 judges them, and it alone speaks. */
#include "load/verify.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "io/sweep.h"
#include "plan/plan.h"
#include "redundancy/redundancy.h"
#include "step/about.h"
#include "step/files.h"

void verify_damage(verifier *v, const char *what) {
    v->damages++;
    if (v->comm->rank == 0 && v->options->on_damage) v->options->on_damage(v->options->ctx, what);
}

static void progress(verifier *v, uint64_t bytes) {
    v->done += bytes;
    if (v->comm->rank == 0 && v->options->on_progress)
        v->options->on_progress(v->options->ctx, v->done, v->file_bytes + v->redundancy_bytes);
}

int verify_absorb(verifier *v, int status, const dcp_error *e) {
    if (status != DCP_ERR_CORRUPT && status != DCP_ERR_VERSION) return status;
    verify_damage(v, e->message);
    return DCP_OK;
}

/* Reads all files' tables; the damaged ones are reported. */
static int read_files(verifier *v, int *usable, dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    *usable = 1;
    for (size_t i = 0; i < ckpt->n_files; i++) {
        dcp_error e;
        step_file *file = &ckpt->files[i];
        if (v->is_part && !file->path) continue;
        free(file->path);
        file->path = step_files_path(ckpt->path, ckpt->layout, i, ckpt->n_files);
        if (!file->path) return core_fail_memory(err, 4096);
        int status = step_tables_read(file, &e);
        if (status) *usable = 0;
        status = verify_absorb(v, status, &e);
        if (status && err) *err = e;
        if (status) return status;
        v->file_bytes += file->ub.file_bytes;
    }
    return DCP_OK;
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
    verify_damage(v, line);
}

/* The files' tables, and whether they fit together. */
static int read_step(verifier *v, const char *path, dcp_error *err) {
    dcp_error e;
    int status = verify_find(v, path, err);
    if (status || !v->ckpt->files) return status;
    v->path = path;
    step_files_surplus(path, v->ckpt->layout, v->ckpt->n_files, on_surplus, v);
    status = read_files(v, &v->usable, err);
    if (status || !v->usable) return status;
    status =
        v->is_part ? step_checkpoint_read_metas(v->ckpt, &e) : step_checkpoint_join(v->ckpt, &e);
    v->usable = !status;
    if (status && status != DCP_ERR_CORRUPT && err) *err = e;
    if (status) return verify_absorb(v, status, &e);
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
    io_sweep_file *files = calloc(ckpt->n_files + 1, sizeof *files);
    if (!files) return core_fail_memory(err, ckpt->n_files * sizeof *files);
    for (size_t f = 0; f < ckpt->n_files; f++)
        if (ckpt->files[f].path)
            files[f] = (io_sweep_file){ckpt->files[f].path, ckpt->files[f].ub.file_bytes};
    const io_sweep s = {.files = files,
                        .n = ckpt->n_files,
                        .rank = v->comm->rank,
                        .size = v->comm->size,
                        .threads = io_sweep_cores(v->comm->size),
                        .fn = add_chunk,
                        .on_read = on_swept,
                        .ctx = v};
    int status = io_sweep_run(&s, err);
    free(files);
    return status;
}

/* Sums are only joined of the same files. */
static int agree_on_files(verifier *v, dcp_error *err) {
    uint64_t tables = ~0ULL;
    for (size_t f = 0; f < v->ckpt->n_files; f++) {
        const userblock *ub = &v->ckpt->files[f].ub;
        const uint64_t said[] = {ub->file_bytes, ub->index.crc, ub->blocks.crc, ub->meta.crc};
        tables = core_crc64_raw(tables, said, sizeof said);
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

static int verify_about(verifier *v, const char *path, dcp_error *err) {
    dcp_error e;
    int status = step_about_check(path, v->ckpt->json ? &v->ckpt->step : NULL, &e);
    if (status == DCP_ERR_NOT_FOUND) status = DCP_ERR_CORRUPT;
    if (status && status != DCP_ERR_CORRUPT && err) *err = e;
    return verify_absorb(v, status, &e);
}

static void on_redundancy_damage(void *v, const char *line) { verify_damage(v, line); }

static void on_redundancy_read(void *v, uint64_t bytes) { progress(v, bytes); }

static int verify_redundancy(verifier *v, const char *path, dcp_error *err) {
    const redundancy_reader reader = {v, on_redundancy_damage, on_redundancy_read};
    return redundancy_verify(path, &reader, err);
}

/* Rank 0's part: what the sums say, and the small files. */
static int judge(verifier *v, const char *path, dcp_error *err) {
    if (v->comm->rank != 0) return DCP_OK;
    int status = v->usable ? verify_judge(v, err) : DCP_OK;
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
