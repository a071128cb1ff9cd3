/* A hostile step on several ranks: all get the same status and message, and none waits. Only rank 0
 * reads tables; all ranks open the files from which they load. */
#include <signal.h>
#include <sys/stat.h>

#include "forge.h"
#include "support/scratch.h"
#include "tiny.h"

static scratch s;
static char step[128], file[192], real[192];

static int load(dcp_error *err) {
    tiny t;
    dcp_checkpoint *ckpt;
    int status = dcp_checkpoint_open(s.comm, step, &ckpt, err);
    if (status) return status;
    CHECK(tiny_make(&t, s.rank, s.size, 0) == 0);
    status = dcp_load(ckpt, t.state, NULL, err);
    tiny_free(&t);
    dcp_checkpoint_close(ckpt);
    return status;
}

static void expect(const char *part) {
    dcp_error err = {0};
    MPI_Barrier(MPI_COMM_WORLD); /* rank 0 has damaged the file */
    check_same_failure(load(&err), DCP_ERR_CORRUPT, &err, part);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 forges one number. */
static void check_number(forge *f, uint64_t at, uint64_t value, const char *part) {
    if (s.rank == 0) {
        core_put_u64(f->bytes + at, value);
        CHECK(forge_put(f) == 0);
    }
    expect(part);
    if (s.rank == 0) CHECK(forge_restore(f) == 0);
}

static void numbers(void) {
    forge f;
    CHECK(forge_open(&f, step, "state.h5") == 0); /* on all: where things are */
    MPI_Barrier(MPI_COMM_WORLD);
    check_number(&f, UB_ROWS, 1ULL << 40,
                 "user block: the index does not have the size of its rows");
    check_number(&f, UB_META + 8, UINT64_MAX, "user block: meta lies outside the file");
    check_number(&f, forge_column_at(&f, 2, SHAPE), UINT64_MAX, "row 2 is not valid: its shape");
    check_number(&f, forge_column_at(&f, 2, OFFSET), forge_at(&f, UB_META), "outside the file");
    check_number(&f, forge_column_at(&f, 2, OFFSET), forge_column(&f, 0, OFFSET), "overlap");
    check_number(&f, forge_row_at(&f, 0), 0x2f2e2e2f, "row 0 is not valid"); /* "/../" */
    check_number(&f, forge_at(&f, UB_BLOCKS) + 8 * 3, 0, "tensor /model/big.weight, block 1");
    check_number(&f, forge_at(&f, UB_META), 0, ": meta: ");
    forge_close(&f);
}

static void kinds(void) {
    if (s.rank == 0) CHECK(rename(file, real) == 0 && symlink(real, file) == 0);
    expect("a symbolic link");
    if (s.rank == 0) CHECK(unlink(file) == 0 && mkfifo(file, 0600) == 0);
    expect("not a regular file");
    if (s.rank == 0) CHECK(unlink(file) == 0 && mkdir(file, 0700) == 0);
    expect("not a regular file");
    if (s.rank == 0) CHECK(rmdir(file) == 0 && rename(real, file) == 0);
}

/* After the step was opened, the file is replaced by a pipe. */
static void later(void) {
    tiny t;
    dcp_error err = {0};
    dcp_checkpoint *ckpt;
    CHECK(dcp_checkpoint_open(s.comm, step, &ckpt, NULL) == DCP_OK);
    if (s.rank == 0) CHECK(rename(file, real) == 0 && mkfifo(file, 0600) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(tiny_make(&t, s.rank, s.size, 0) == 0);
    check_same_failure(dcp_load(ckpt, t.state, NULL, &err), DCP_ERR_CORRUPT, &err,
                       "not a regular file");
    tiny_free(&t);
    dcp_checkpoint_close(ckpt);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s.rank == 0) CHECK(unlink(file) == 0 && rename(real, file) == 0);
}

int main(int argc, char **argv) {
    dcp_error err = {0};
    scratch_begin(&s, &argc, &argv);
    alarm(120); /* a rank that waits is a failure */
    snprintf(step, sizeof step, "%s/step-00000003", s.root);
    snprintf(file, sizeof file, "%s/state.h5", step);
    snprintf(real, sizeof real, "%s/real", s.root);
    CHECK(tiny_save(s.comm, s.root, 3, DCP_LAYOUT_GLOBAL, &err) == DCP_OK);
    numbers();
    kinds();
    later();
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(load(&err) == DCP_OK);
    return scratch_end(&s);
}
