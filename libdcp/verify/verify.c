/* Checks every byte of a step: user block, tables, the bytes between tensors, every block of every
 * tensor, and about.json. If the step has shards, also checks that together they are the state that
 * they claim to be. The check continues after damage, so all damage is reported.
 *
 * Every rank reads all tables and a part of the files, on several threads. The sums of all ranks
 * are joined; only rank 0 compares them with the tables and reports. */
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/bytes.h"
#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "format/about.h"
#include "format/folder.h"
#include "format/hold.h"
#include "h5/skeleton.h"
#include "io/scan.h"
#include "io/threads.h"
#include "reader/checkpoint.h"
#include "redundancy/parity.h"
#include "verify/checksums.h"

/* A step that is being verified. */
typedef struct verifier {
    dcp_comm *comm;
    const dcp_verify_options *options;
    dcp_checkpoint *ckpt;
    const char *path; /* the step's folder */
    comm_stop stop;
    verify_sums *sums;
    uint64_t file_bytes, redundancy_bytes, done, damages;
    bool usable;  /* the tables are valid and fit together */
    bool is_part; /* a private store's folder, with only some of the step's shards */
} verifier;

/* Reports one instance of damage in one line, on rank 0 only. */
DCP_PRINTF(2, 3) static void report_damage(verifier *v, const char *fmt, ...) {
    char line[DCP_MAX_PATH + PATH_MAX + 400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    v->damages++;
    if (v->comm->rank == 0 && v->options->on_damage) v->options->on_damage(v->options->ctx, line);
}

static void report_progress(verifier *v, uint64_t bytes) {
    v->done += bytes;
    if (v->comm->rank == 0 && v->options->on_progress)
        v->options->on_progress(v->options->progress_ctx, v->done,
                                v->file_bytes + v->redundancy_bytes);
}

/* Reports a failure that is damage and returns DCP_OK; other failures end the check. */
static int absorb_damage(verifier *v, int status, const dcp_error *e, dcp_error *err) {
    if (status == DCP_ERR_CORRUPT || status == DCP_ERR_VERSION) {
        report_damage(v, "%s", e->message);
        return DCP_OK;
    }
    if (status && err) *err = *e;
    return status;
}

/* Makes the list of v->ckpt's files, with the paths of the shards that are in the folder; `here`
 * marks these shards. `kept` marks the shards that should be in the folder; missing ones are
 * reported. */
static int take_shards(verifier *v, const char *path, int world, const unsigned char *kept,
                       const unsigned char *here, dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    ckpt->layout = DCP_LAYOUT_SHARDED;
    int status = reader_checkpoint_make_files(ckpt, (size_t)world, err);
    for (int f = 0; f < world && !status; f++) {
        char **file = &ckpt->files[f].path;
        if (here[f] && !(*file = format_folder_path(path, ckpt->layout, (size_t)f, ckpt->n_files)))
            status = core_fail_memory(err, PATH_MAX);
        else if (kept[f] && !here[f])
            report_damage(v, "%s/shard-%05d-of-%05d.h5 is missing", path, f, world);
    }
    return status;
}

/* Finds the files of a private store's folder whose about.json says that it holds only a part of
 * the shards. */
static int find_part(verifier *v, const char *path, dcp_error *err) {
    int world = 0, n, status = format_folder_world(path, INT_MAX, &world, err);
    if (status || !world) return status;
    unsigned char *kept = core_array(2, (size_t)world);
    if (!kept) return core_fail_memory(err, (uint64_t)world);
    unsigned char *here = kept + world;
    status = format_about_is_part(path, world, kept, &v->is_part, err);
    if (!status) status = format_folder_shards(path, world, here, &n, err);
    if (!status && v->is_part) status = take_shards(v, path, world, kept, here, err);
    free(kept);
    return status;
}

/* Reports a folder that has both state.h5 and all shards, since one of the two does not belong
 * there. A load would use state.h5. */
static int check_one_layout(verifier *v, const char *path, dcp_error *err) {
    int world = 0, n, status = DCP_OK;
    if (v->ckpt->layout == DCP_LAYOUT_GLOBAL)
        status = format_folder_world(path, INT_MAX, &world, err);
    if (status || !world) return status;
    unsigned char *here = malloc((size_t)world);
    if (!here) return core_fail_memory(err, (uint64_t)world);
    status = format_folder_shards(path, world, here, &n, err);
    if (!status && n == world)
        report_damage(v, "%s: holds both state.h5 and shards of %d ranks", path, world);
    free(here);
    return status;
}

/* Finds the files of the step in the folder `path`, and fills in the layout and files of v->ckpt.
 * If some files of the step are missing, and the folder is not one node's part of a step, reports
 * that and fills in no files. Not collective. */
static int find_files(verifier *v, const char *path, dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    dcp_error e;
    size_t n;
    int status = format_folder_files(path, &n, &ckpt->layout, &e);
    if (status == DCP_ERR_CORRUPT) {
        int found = find_part(v, path, err);
        if (found || v->is_part) return found;
    }
    if (status) return absorb_damage(v, status, &e, err);
    status = check_one_layout(v, path, err);
    return status ? status : reader_checkpoint_make_files(ckpt, n, err);
}

/* Reads the tables of all files, and reports damaged ones. */
static int read_tables(verifier *v, bool *usable, dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    *usable = true;
    for (size_t i = 0; i < ckpt->n_files; i++) {
        dcp_error e;
        format_file *file = &ckpt->files[i];
        if (v->is_part && !file->path) continue;
        free(file->path);
        file->path = format_folder_path(ckpt->path, ckpt->layout, i, ckpt->n_files);
        if (!file->path) return core_fail_memory(err, 4096);
        int status = format_tables_read(file, &e);
        if (status) *usable = false;
        status = absorb_damage(v, status, &e, err);
        if (status) return status;
        v->file_bytes += file->ub.file_bytes;
    }
    return DCP_OK;
}

/* Numbers the blocks of files that are not joined to a step. */
static void number_blocks(dcp_checkpoint *ckpt) {
    for (size_t f = 0; f < ckpt->n_files; f++) {
        ckpt->files[f].first_block = ckpt->blocks;
        if (ckpt->files[f].path) ckpt->blocks += ckpt->files[f].ub.blocks.bytes / 8;
    }
}

static void on_surplus(void *ctx, const char *name) {
    verifier *v = ctx;
    report_damage(v, "%s/%s: surplus: it does not belong to the step", v->path, name);
}

/* Reads the files' tables, and checks that they fit together. */
static int read_step(verifier *v, const char *path, dcp_error *err) {
    dcp_error e;
    int status = find_files(v, path, err);
    if (status || !v->ckpt->files) return status;
    v->path = path;
    status = format_folder_surplus(path, v->ckpt->layout, v->ckpt->n_files, on_surplus, v, err);
    if (!status) status = read_tables(v, &v->usable, err);
    if (status || !v->usable) return status;
    status = v->is_part ? reader_join_metas(v->ckpt, &e) : reader_join_files(v->ckpt, &e);
    v->usable = !status;
    if (status) return absorb_damage(v, status, &e, err);
    if (v->is_part) number_blocks(v->ckpt);
    return verify_sums_create(v->ckpt, &v->sums, err);
}

static int on_scanned(void *ctx, uint64_t done, dcp_error *err) {
    verifier *v = ctx;
    uint64_t all = done * (uint64_t)v->comm->size; /* assumes similar progress on other ranks */
    if (all > v->file_bytes) all = v->file_bytes;
    if (all > v->done) report_progress(v, all - v->done);
    return comm_stop_poll(&v->stop, err);
}

static void sum_bytes(void *ctx, size_t file, uint64_t offset, const unsigned char *data,
                      uint64_t bytes) {
    verify_sums_add(((verifier *)ctx)->sums, file, offset, data, bytes);
}

/* Reads this rank's part of all files. */
static int sum_part(verifier *v, dcp_error *err) {
    const dcp_checkpoint *ckpt = v->ckpt;
    io_scan_file *files = calloc(ckpt->n_files + 1, sizeof *files);
    if (!files) return core_fail_memory(err, ckpt->n_files * sizeof *files);
    for (size_t f = 0; f < ckpt->n_files; f++)
        if (ckpt->files[f].path)
            files[f] = (io_scan_file){ckpt->files[f].path, ckpt->files[f].ub.file_bytes,
                                      ckpt->files[f].folder};
    const io_scan s = {.files = files,
                       .n = ckpt->n_files,
                       .rank = v->comm->rank,
                       .size = v->comm->size,
                       .threads = io_threads_cores(v->comm->size, IO_THREADS_MAX),
                       .fn = sum_bytes,
                       .on_read = on_scanned,
                       .ctx = v};
    int status = io_scan_run(&s, err);
    free(files);
    return status;
}

/* Checks that all ranks have read the same tables, because only sums of the same files may be
 * joined. */
static int agree_on_files(verifier *v, dcp_error *err) {
    uint64_t tables = ~0ULL;
    for (size_t f = 0; f < v->ckpt->n_files; f++) {
        const format_userblock *ub = &v->ckpt->files[f].ub;
        const uint64_t said[] = {ub->file_bytes, ub->index.crc, ub->blocks.crc, ub->meta.crc};
        tables = core_crc64_raw(tables, said, sizeof said);
    }
    comm_vote vote = {0};
    comm_vote_same(&vote, "the number of the step's files", v->ckpt->n_files);
    comm_vote_same(&vote, "whether the tables are right", (uint64_t)v->usable);
    comm_vote_same_hash(&vote, "the files' tables", v->usable ? tables : 0);
    return comm_vote_run(v->comm, &vote, DCP_OK, err);
}

/* Collective. */
static int sum_files(verifier *v, dcp_error *err) {
    uint64_t n;
    int status = agree_on_files(v, err);
    if (status || !v->usable) return status;
    status = comm_agree(v->comm, sum_part(v, err), err);
    if (status) return status;
    uint64_t *sums = verify_sums_raw(v->sums, &n);
    return comm_allreduce(v->comm, sums, n, DCP_REDUCE_XOR, err);
}

/* Composes the tables' bytes one after the other, as in the file. */
static void fill_tables(const format_file *file, unsigned char **tables, unsigned char *all) {
    const format_userblock *ub = &file->ub;
    tables[0] = all;
    tables[1] = tables[0] + ub->index.bytes;
    tables[2] = tables[1] + ub->blocks.bytes;
    format_index_encode(file->rows, ub->rows, format_index_path_bytes(file->rows, ub->rows),
                        ub->layout, tables[0]);
    for (uint64_t b = 0; b < ub->blocks.bytes / 8; b++)
        core_put_u64(tables[1] + 8 * b, file->crcs[b]);
    memset(tables[2], ' ', ub->meta.bytes);
    memcpy(tables[2], file->meta, strlen(file->meta));
}

static bool same_offsets(const format_file *file, const format_row *rows, const h5_skeleton *s) {
    for (uint64_t i = 0; i < file->ub.rows; i++)
        if (rows[i].bytes && rows[i].offset != file->rows[i].offset) return false;
    return s->file_bytes == file->ub.file_bytes;
}

/* Sets *ours to true if this library with its HDF5, given the file's rows, checksums and meta,
 * would write the same bytes outside tensor data that the file has. The checksum in the user block
 * shows whether they are the same. HDF5 lays out the file again in memory, and never opens the file
 * itself, so forged metadata cannot mislead it. */
static int is_own_metadata(const format_file *file, bool *ours, dcp_error *err) {
    const format_userblock *ub = &file->ub;
    uint64_t bytes = ub->index.bytes + ub->blocks.bytes + ub->meta.bytes, crc = 0;
    unsigned char *all = malloc(bytes + 1), *tables[3];
    format_row *rows = core_array(ub->rows + 1, sizeof *rows);
    h5_skeleton s = {0};
    int status = DCP_OK;
    *ours = false;
    if (!all || !rows) {
        status = core_fail_memory(err, bytes + ub->rows * sizeof *rows);
        goto free_all;
    }
    memcpy(rows, file->rows, ub->rows * sizeof *rows);
    status = h5_skeleton_build(rows, ub->rows, ub->layout, ub->meta.bytes, NULL, &s, err);
    if (!status && same_offsets(file, rows, &s)) {
        fill_tables(file, tables, all);
        status = h5_skeleton_outside_crc(&s, rows, ub->rows, (const unsigned char *const *)tables,
                                         &crc, err);
        *ours = !status && crc == ub->outside_crc;
    }
    if (status == DCP_ERR_ARG) status = DCP_OK; /* the library refuses to write these rows */
free_all:
    h5_skeleton_free(&s);
    free(all);
    free(rows);
    return status;
}

/* Compares the sums of one dataset. */
static void judge_dataset(verifier *v, const reader_dataset *p) {
    const uint64_t *crcs = p->crcs;
    for (uint64_t b = 0; b < format_index_blocks(p->row->bytes); b++) {
        unsigned long long from = b * BLOCK_BYTES;
        if (verify_sums_block(v->sums, p->file, p->row, b) == crcs[b]) continue;
        report_damage(v, "%s: tensor %s, block %llu (bytes %llu to %llu): damaged", p->file->path,
                      p->row->tensor.path, (unsigned long long)b, from,
                      from + format_index_block_bytes(p->row->bytes, b));
    }
    if (format_index_join_blocks(crcs, p->row->bytes) != p->row->crc)
        report_damage(v, "%s: index: tensor %s: its checksum is not that of its blocks",
                      p->file->path, p->row->tensor.path);
}

/* Judges one row of a file that is not joined to a step. */
static void judge_row(verifier *v, format_file *file, const format_row *row) {
    judge_dataset(v, &(reader_dataset){file, row, file->crcs + row->first_block, 0, 0});
}

/* Reports a note if this library would have written different metadata. That is not damage, because
 * a different version of HDF5 may have written the file's metadata. */
static int judge_origin(verifier *v, const format_file *file, dcp_error *err) {
    char line[4300];
    dcp_error e;
    bool ours = true;
    if (!v->options->on_note) return DCP_OK;
    int status = is_own_metadata(file, &ours, &e);
    if (status) {
        core_fail_again(err, status, &e, "%s: HDF5 metadata: could not be checked: %s", file->path,
                        e.message);
        return core_fail_path(status, file->path, err);
    }
    if (ours) return DCP_OK;
    snprintf(line, sizeof line,
             "%s: HDF5 metadata: not what this library writes for these tensors: another version "
             "of HDF5 wrote it, or it was changed on purpose; other programs may read other data",
             file->path);
    v->options->on_note(v->options->ctx, line);
    return DCP_OK;
}

static int judge_outside(verifier *v, const format_file *file, dcp_error *err) {
    if (verify_sums_outside(v->sums, file) == file->ub.outside_crc)
        return judge_origin(v, file, err);
    report_damage(v,
                  "%s: HDF5 metadata or padding: bytes outside the tensors and tables are damaged",
                  file->path);
    return DCP_OK;
}

/* Judges all tensors; for shards also the state id, which no single file can prove. */
static void judge_tensors(verifier *v) {
    const dcp_checkpoint *ckpt = v->ckpt;
    uint64_t id = ~0ULL, before = v->damages;
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const reader_tensor *t = &ckpt->tensors[i];
        for (size_t k = 0; k < t->n_datasets; k++) judge_dataset(v, &t->datasets[k]);
        if (ckpt->layout == DCP_LAYOUT_SHARDED)
            id = format_index_state_id(id, &t->tensor, verify_sums_tensor(v->sums, i));
    }
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)~id);
    if (ckpt->layout == DCP_LAYOUT_SHARDED && v->damages == before && strcmp(text, ckpt->state_id))
        report_damage(v, "meta: the state id is not that of the tensors: the shards belong to "
                         "different states");
}

/* Called on rank 0 after the sums of all ranks were joined. Reports the damage in all files. */
static int judge_files(verifier *v, dcp_error *err) {
    const dcp_checkpoint *ckpt = v->ckpt;
    int status = DCP_OK; /* the first failure; reporting continues after it */
    for (size_t f = 0; f < ckpt->n_files; f++) {
        if (!ckpt->files[f].path) continue;
        const int judged = judge_outside(v, &ckpt->files[f], status ? NULL : err);
        if (!status) status = judged;
    }
    if (!v->is_part) judge_tensors(v);
    for (size_t f = 0; f < ckpt->n_files && v->is_part; f++)
        for (size_t i = 0; ckpt->files[f].path && i < ckpt->files[f].ub.rows; i++)
            judge_row(v, &ckpt->files[f], &ckpt->files[f].rows[i]);
    return status;
}

static int judge_about(verifier *v, const char *path, dcp_error *err) {
    dcp_error e;
    int status = format_about_check(path, v->ckpt->json ? &v->ckpt->step : NULL, &e);
    if (status == DCP_ERR_NOT_FOUND && (!v->ckpt->hold || format_hold_is_named(v->ckpt->hold)))
        status = DCP_ERR_CORRUPT; /* otherwise a writer removed the step meanwhile */
    return absorb_damage(v, status, &e, err);
}

static void on_redundancy_damage(void *v, const char *line) { report_damage(v, "%s", line); }

static int on_redundancy_read(void *ctx, uint64_t bytes, dcp_error *err) {
    verifier *v = ctx;
    report_progress(v, bytes);
    return comm_stop_poll(&v->stop, err);
}

/* Does rank 0's part: judges the sums, and checks the small files. */
static int judge_step(verifier *v, const char *path, dcp_error *err) {
    const redundancy_reader redundancy = {v, on_redundancy_damage, on_redundancy_read};
    if (v->comm->rank != 0) return DCP_OK;
    int status = v->usable ? judge_files(v, err) : DCP_OK;
    if (!status) status = judge_about(v, path, err);
    if (!status) status = redundancy_parity_verify(path, &redundancy, err);
    return status;
}

static int check_step(verifier *v, const char *path, dcp_error *err) {
    int status = comm_agree(v->comm, read_step(v, path, err), err);
    if (!status) status = sum_files(v, err);
    if (!status) status = comm_agree(v->comm, judge_step(v, path, err), err);
    if (!status) status = comm_broadcast(v->comm, &v->damages, sizeof v->damages, 0, err);
    if (!status) /* including other ranks' bytes */
        report_progress(v, v->file_bytes + v->redundancy_bytes - v->done);
    if (!status && v->damages)
        status = core_fail_at(err, DCP_ERR_CORRUPT, path, "%llu damages found",
                              (unsigned long long)v->damages);
    return status;
}

int dcp_verify_with(dcp_comm *comm, const char *path, const dcp_verify_options *options,
                    dcp_error *err) {
    dcp_verify_options own;
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_verify_with: a communicator is needed");
    verifier v = {.comm = comm, .options = &own, .ckpt = calloc(1, sizeof *v.ckpt)};
    int status = core_sized_copy_in(&own, sizeof own, options, "DCP_VERIFY_OPTIONS_INIT", err);
    v.stop = (comm_stop){.should_stop = own.stop,
                         .ctx = own.stop_ctx,
                         .what = "the check",
                         .outcome = "bytes that were not read yet are not checked"};
    if (!status && !path)
        status = core_fail(err, DCP_ERR_ARG, "dcp_verify: a path is needed");
    else if (!status && core_path_check(NULL, path, err))
        status = DCP_ERR_UNSUPPORTED;
    else if (!status && (!v.ckpt || !(v.ckpt->path = strdup(path))))
        status = core_fail_memory(err, PATH_MAX);
    status = comm_agree(comm, status, err);
    if (!status) {
        comm_stop_begin(&v.stop, comm);
        v.ckpt->hold = format_hold_open(path, 1, &v.ckpt->gone);
        v.redundancy_bytes = redundancy_parity_bytes(path);
        status = check_step(&v, path, err);
    }
    verify_sums_destroy(v.sums);
    dcp_checkpoint_close(v.ckpt);
    return status;
}

int dcp_verify(const char *path, const dcp_verify_options *options, dcp_error *err) {
    dcp_comm *self;
    int status = dcp_comm_self(&self, err);
    if (status) return status;
    status = dcp_verify_with(self, path, options, err);
    if (status && err) err->rank = -1; /* not collective */
    dcp_comm_destroy(self);
    return status;
}
