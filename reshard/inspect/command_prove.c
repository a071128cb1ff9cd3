/* dcp-inspect prove: prints, for a step's files, the same checksums that dcp_prove computes for a
 * state in memory. The tables contain most of them. A tensor whose shards are not contiguous parts
 * of it has no checksum in the tables; such tensors are read, and proven as a state whose boxes lie
 * in the files. */
#include "inspect/commands.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <dcp/prove.h>

#include "common/launch.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/fail.h"
#include "programs/program.h"

/* The rows of a tensor that this rank reads. */
typedef struct prove_source {
    dcp_checkpoint *ckpt;
    const dcp_tensor *tensor;
    dcp_box box;
} prove_source;

typedef struct prove_list {
    dcp_checkpoint *ckpt;
    unsigned char *take; /* [n] nonzero: the tensor is printed */
    uint64_t *crcs;      /* [n] the tensors' checksums */
    prove_source *sources;
    size_t n;
} prove_list;

static int read_source(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const prove_source *s = ctx;
    const uint32_t dims = s->tensor->ndim ? s->tensor->ndim : 1;
    const uint64_t size = dcp_dtype_bytes(s->tensor->dtype);
    int status = DCP_OK;
    for (uint64_t at = offset / size, end = at + bytes / size, n; at < end && !status; at += n) {
        dcp_box part;
        n = dcp_box_slice(dims, &s->box, at, end - at, &part);
        status = dcp_checkpoint_read(s->ckpt, s->tensor->path, &part, out, err);
        out = (char *)out + n * size;
    }
    return status;
}

/* Copies checksums from the tables, and adds the other tensors to the state. */
static int add_tensors(prove_list *l, const launch *job, dcp_state *state, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < l->n && !status; i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(l->ckpt, i);
        prove_source *s = &l->sources[i];
        if (!l->take[i]) continue;
        status = dcp_checkpoint_crc(l->ckpt, i, &l->crcs[i], err);
        if (status != DCP_ERR_UNSUPPORTED) continue;
        *s = (prove_source){l->ckpt, t, dcp_box_chunk(t, job->rank, job->size)};
        status = dcp_state_add_source(state, t, &s->box, read_source, s, -1, err);
    }
    return status;
}

static void take_checksums(prove_list *l, const dcp_proof *proof) {
    size_t k = 0;
    for (size_t i = 0; i < l->n; i++)
        if (l->sources[i].ckpt) l->crcs[i] = dcp_proof_crc(proof, k++);
}

/* Finds the checksums of all tensors to print. Returns an exit status. Collective. */
static int find_checksums(prove_list *l, const launch *job) {
    dcp_error err = {0};
    dcp_state *state = NULL;
    dcp_proof *proof = NULL;
    int status = dcp_state_create(&state, &err);
    if (!status) status = add_tensors(l, job, state, &err);
    status = launch_worst(job, status ? program_report(&err) : PROGRAM_DONE);
    if (!status && dcp_state_tensors(state)) {
        if (dcp_prove(job->comm, state, NULL, &proof, &err))
            status = program_report(&err);
        else
            take_checksums(l, proof);
    }
    dcp_proof_destroy(proof);
    dcp_state_destroy(state);
    return status;
}

static const char *hex(uint64_t value, char *text /* 17 bytes */) {
    sprintf(text, "%016" PRIx64, value);
    return text;
}

static void print_proof_json(const prove_list *l, const char *id) {
    char text[17];
    json_t *tensors = json_array(), *root = inspect_checkpoint_json(l->ckpt);
    json_object_set_new(root, "state_id", json_string(id));
    for (size_t i = 0; i < l->n; i++) {
        if (!l->take[i]) continue;
        json_t *tensor = inspect_tensor_json(dcp_checkpoint_tensor(l->ckpt, i));
        json_object_set_new(tensor, "crc64", json_string(hex(l->crcs[i], text)));
        json_array_append_new(tensors, tensor);
    }
    json_object_set_new(root, "tensors", tensors);
    inspect_text_print_json(root);
}

static void print_proof_text(const prove_list *l, const char *id) {
    char name[TEXT_PATH], text[17];
    for (size_t i = 0; i < l->n; i++)
        if (l->take[i])
            printf("%s  %s\n", hex(l->crcs[i], text),
                   inspect_text_name(dcp_checkpoint_tensor(l->ckpt, i)->path, name));
    printf("step %" PRIu64 ": state id %s\n", dcp_checkpoint_step(l->ckpt), id);
}

/* Collective. */
static int prove_step(const launch *job, dcp_checkpoint *ckpt, char *const *globs, size_t n_globs,
                      bool as_json) {
    const size_t n = dcp_checkpoint_tensors(ckpt);
    prove_list l = {.ckpt = ckpt,
                    .take = calloc(n + 1, 1),
                    .crcs = calloc(n + 1, sizeof *l.crcs),
                    .sources = calloc(n + 1, sizeof *l.sources),
                    .n = n};
    uint64_t id;
    char text[17];
    int status = PROGRAM_DONE;
    if (!l.take || !l.crcs || !l.sources)
        status = program_no_memory();
    else if (!dcp_checkpoint_state_id(ckpt, &id))
        status = program_fail(PROGRAM_DIFFERS, "%s: its shards have no state id",
                              dcp_checkpoint_path(ckpt));
    else
        status = inspect_filter_tensors(ckpt, globs, n_globs, l.take);
    status = launch_worst(job, status);
    if (!status) status = find_checksums(&l, job);
    if (!status && !job->rank) (as_json ? print_proof_json : print_proof_text)(&l, hex(id, text));
    free(l.take);
    free(l.crcs);
    free(l.sources);
    return status;
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect prove ckpt                   the newest complete step\n"
    "  dcp-inspect prove ckpt 'model/*' --json\n"
    "\n"
    "Prints each tensor's CRC-64 and the state id: one number for all tensors' paths, types,\n"
    "shapes and checksums, equal for equal states, whatever the layout and the ranks.\n"
    "dcp-train --prove-every and dcp_prove compute the same id for a state in memory. The\n"
    "checksums come from the step's tables; only tensors that layout sharded cuts across their\n"
    "rows are read. Whether the files' bytes match the tables is checked by verify.\n"
    "\n"
    "JSON: path, step, layout, files, state_id, tensors (path, dtype, shape, bytes, crc64).";

int inspect_prove(int argc, char **argv) {
    char **args;
    int n;
    bool as_json = false;
    const program_option options[] = {{0}};
    const program_command program = {.name = "dcp-inspect",
                                     .usage = "prove CKPT [GLOB...] [--json]",
                                     .about = about,
                                     .options = options,
                                     .json = &as_json};
    dcp_error err = {0};
    dcp_checkpoint *ckpt;
    launch job;
    int status = program_arguments_parse(&program, argc, argv, 1, 1 << 20, &args, &n);
    if (status >= 0) return status;
    status = launch_start(&job);
    if (status) return status;
    if (dcp_checkpoint_open(job.comm, args[0], &ckpt, &err)) {
        status = program_report(&err);
    } else {
        status = prove_step(&job, ckpt, args + 1, (size_t)n - 1, as_json);
        dcp_checkpoint_close(ckpt);
    }
    launch_end(&job);
    return status;
}
