/* One file per rank: what some ranks saved under one scheme, all, some and one of them load under
 * others; and every byte of it verifies. */
#include "reader/checkpoint.h"
#include "support/scratch.h"

/* Each element is in one file, even if several ranks held it. */
static void check_written_once(const dcp_checkpoint *ckpt) {
    uint64_t wanted = 0, written = 0;
    for (size_t i = 0; i < ckpt->n_tensors; i++) wanted += ckpt->tensors[i].bytes;
    for (size_t f = 0; f < ckpt->n_files; f++) {
        format_file file = format_file_of(strdup(ckpt->files[f].path));
        SUCCEEDS(format_tables_read(&file, err));
        for (size_t i = 0; i < file.ub.rows; i++) written += file.rows[i].bytes;
        format_tables_free(&file);
    }
    CHECK(written == wanted);
}

/* The first n ranks; NULL on the others. */
static dcp_comm *first_ranks(const scratch *s, int n) {
    MPI_Comm part;
    dcp_comm *comm = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, s->rank < n ? 0 : MPI_UNDEFINED, s->rank, &part);
    if (s->rank >= n) return NULL;
    SUCCEEDS(dcp_comm_from_mpi(part, &comm, err));
    MPI_Comm_free(&part);
    return comm;
}

static void check_saved(const scratch *s, const given *g, int files) {
    char step[PATH_MAX];
    snprintf(step, sizeof step, "%s/shards", s->root);
    dcp_checkpoint *ckpt;
    SUCCEEDS(dcp_checkpoint_open(s->self, step, &ckpt, err));
    CHECK(dcp_checkpoint_layout(ckpt) == DCP_LAYOUT_SHARDED && dcp_checkpoint_files(ckpt) == files);
    CHECK(dcp_checkpoint_tensors(ckpt) == GIVEN_TENSORS && dcp_checkpoint_step(ckpt) == 5);
    CHECK(!strstr(dcp_checkpoint_json(ckpt), "shard"));
    for (size_t t = 0; t < GIVEN_TENSORS; t++) {
        const dcp_tensor *have = dcp_checkpoint_find(ckpt, g->tensors[t].path);
        CHECK(have && have->ndim == g->tensors[t].ndim && have->dtype == g->tensors[t].dtype);
    }
    check_written_once(ckpt);
    SUCCEEDS(dcp_verify(dcp_checkpoint_path(ckpt), NULL, err));
    dcp_checkpoint_close(ckpt);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    for (scheme how = ROWS; how < SAVE_SCHEMES; how++) {
        int n = how == ROWS ? s.size : 1 + (int)how % s.size;
        dcp_comm *part = first_ranks(&s, n);
        if (part) scratch_save(&s, part, "shards", &g, how, DCP_LAYOUT_SHARDED);
        MPI_Barrier(MPI_COMM_WORLD);
        if (s.rank == 0) check_saved(&s, &g, n);
        scratch_load(&s, s.comm, "shards", &g, (how + 1) % LOAD_SCHEMES);
        scratch_load(&s, s.comm, "shards", &g, (how + 4) % LOAD_SCHEMES);
        if (part) scratch_load(&s, part, "shards", &g, how);
        if (s.rank == 0) scratch_load(&s, s.self, "shards", &g, COPIES);
        MPI_Barrier(MPI_COMM_WORLD);
        dcp_comm_destroy(part);
    }
    given_free(&g);
    return scratch_end(&s);
}
