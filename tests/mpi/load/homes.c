/* Steps of shards, of which each rank stores only the rows of some tensors: loads get theirs from
 * the tensors' homes, on more and on fewer ranks than saved them, with halos and replicas. Queries
 * about boxes and pieces have the same result on every rank, whichever rank stores them. */
#include "dcp/inspect.h"
#include "reader/view.h"
#include "support/private.h"

/* The first n ranks; NULL on the others. */
static dcp_comm *first_part(const scratch *s, int n) {
    MPI_Comm part;
    dcp_comm *comm = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, s->rank < n ? 0 : MPI_UNDEFINED, s->rank, &part);
    if (s->rank >= n) return NULL;
    SUCCEEDS(dcp_comm_from_mpi(part, &comm, err));
    MPI_Comm_free(&part);
    return comm;
}

static void check_homes(const dcp_checkpoint *ckpt) {
    CHECK(ckpt->rows == READER_ROWS_AT_HOMES && !ckpt->datasets);
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        int is_home = reader_checkpoint_home(ckpt, i) == ckpt->comm->rank;
        CHECK(!ckpt->tensors[i].rows == !is_home && !ckpt->tensors[i].datasets);
    }
    for (size_t f = 0; f < ckpt->n_files; f++)
        CHECK(!ckpt->files[f].rows && !ckpt->files[f].crcs && !ckpt->files[f].meta);
}

static void check_piece(const dcp_piece *a, const dcp_piece *b, const dcp_tensor *t) {
    uint32_t dims = t->ndim ? t->ndim : 1;
    CHECK(a->file == b->file && a->bytes == b->bytes && a->crc == b->crc);
    CHECK(!memcmp(a->box.start, b->box.start, 8 * dims));
    CHECK(!memcmp(a->box.count, b->box.count, 8 * dims));
    CHECK(!memcmp(a->block_crcs, b->block_crcs, (a->bytes + (4 << 20) - 1) / (4 << 20) * 8));
}

/* Compares what this rank gets with what a process gets that opened the step alone. */
static void check_answers(const dcp_checkpoint *ckpt, const dcp_checkpoint *alone) {
    for (size_t i = 0; i < dcp_checkpoint_tensors(alone); i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(alone, i);
        uint64_t crcs[2] = {0, 0};
        CHECK(dcp_checkpoint_boxes(ckpt, i) == dcp_checkpoint_boxes(alone, i));
        CHECK(dcp_checkpoint_pieces(ckpt, i) == dcp_checkpoint_pieces(alone, i));
        CHECK(dcp_checkpoint_crc(ckpt, i, &crcs[0], NULL) ==
                  dcp_checkpoint_crc(alone, i, &crcs[1], NULL) &&
              crcs[0] == crcs[1]);
        for (size_t k = 0; k < dcp_checkpoint_boxes(alone, i); k++) {
            dcp_box a = {{0}, {0}}, b = {{0}, {0}};
            CHECK(dcp_checkpoint_box(ckpt, i, k, &a) == dcp_checkpoint_box(alone, i, k, &b));
            CHECK(!memcmp(a.start, b.start, 8 * (t->ndim ? t->ndim : 1)));
        }
        for (size_t k = 0; k < dcp_checkpoint_pieces(alone, i); k++) {
            dcp_piece a = DCP_PIECE_INIT, b = DCP_PIECE_INIT;
            CHECK(!dcp_checkpoint_piece(ckpt, i, k, &a) && !dcp_checkpoint_piece(alone, i, k, &b));
            check_piece(&a, &b, t);
        }
        dcp_box box;
        CHECK(dcp_checkpoint_box(ckpt, i, dcp_checkpoint_boxes(alone, i), &box) == -1);
    }
}

static void check_reads(dcp_checkpoint *ckpt, const given *g) {
    for (size_t t = 0; t < GIVEN_TENSORS; t++) {
        dcp_box box = given_box(g, t, CORNERS, 1, 3);
        uint64_t bytes;
        unsigned char *want = given_cut(g, t, &box, &bytes), *have = malloc(bytes + 1);
        SUCCEEDS(dcp_checkpoint_read(ckpt, g->tensors[t].path, &box, have, err));
        CHECK(!memcmp(want, have, bytes));
        free(want);
        free(have);
    }
}

static void every_world(const scratch *s, const given *g) {
    for (scheme how = ROWS; how < SAVE_SCHEMES; how++) {
        int n = 1 + (int)how % s->size;
        dcp_comm *part = first_part(s, n);
        if (part) scratch_save(s, part, "homes", g, how, DCP_LAYOUT_SHARDED);
        MPI_Barrier(MPI_COMM_WORLD);
        dcp_checkpoint *ckpt = scratch_open(s, s->comm, "homes"),
                       *alone = scratch_open(s, s->self, "homes");
        check_homes(ckpt);
        if (how % 2)
            check_reads(ckpt, g);
        else
            check_answers(ckpt, alone);
        if (how % 2 == 0) check_reads(ckpt, g);
        dcp_checkpoint_close(alone);
        dcp_checkpoint_close(ckpt);
        scratch_load(s, s->comm, "homes", g, HALO);
        scratch_load(s, s->comm, "homes", g, how % 2 ? COPIES : COLUMNS);
        MPI_Barrier(MPI_COMM_WORLD);
        dcp_comm_destroy(part);
    }
}

/* A rank that opens a step without seeing all of its files gets the same. */
static void hidden_files(const scratch *s, const given *g) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    uint64_t told = 0, sum;
    node_dir(s, "private", s->rank, dir);
    private_save(s->comm, dir, g, STRIPES, 5);
    SUCCEEDS(dcp_checkpoint_open_private(s->comm, dir, &ckpt, err));
    CHECK(ckpt->rows == (s->size > 1 ? READER_ROWS_COPIED : READER_ROWS_AT_HOMES));
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++)
        for (size_t k = 0; k < dcp_checkpoint_pieces(ckpt, i); k++) {
            dcp_piece p = DCP_PIECE_INIT;
            CHECK(!dcp_checkpoint_piece(ckpt, i, k, &p));
            told = told * 31 + p.crc + p.box.start[0] + (uint64_t)p.file + p.block_crcs[0];
        }
    MPI_Allreduce(&told, &sum, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
    CHECK(told && sum == (s->size % 2 ? told : 0));
    dcp_checkpoint_close(ckpt);
}

/* A row that changes after the step was opened is detected when it is looked up. */
static void changed_rows(const scratch *s, const given *g) {
    dcp_error failure = {0};
    scratch_save(s, s->comm, "changed", g, ROWS, DCP_LAYOUT_SHARDED);
    dcp_checkpoint *ckpt = scratch_open(s, s->comm, "changed");
    size_t i = 0;
    while (strcmp(dcp_checkpoint_tensor(ckpt, i)->path, "/model/blocks")) i++;
    if (s->rank == 0) {
        const format_file *file = &ckpt->files[0];
        unsigned char *index = malloc(file->ub.index.bytes), *row;
        int fd = open(file->path, O_RDWR);
        CHECK(fd >= 0 && pread(fd, index, file->ub.index.bytes, (off_t)file->ub.index.offset) > 0);
        row = memmem(index, file->ub.index.bytes, "/model/blocks", sizeof "/model/blocks");
        CHECK(row);
        off_t crc =
            (off_t)(file->ub.row_bytes - format_index_row_bytes(0, DCP_LAYOUT_SHARDED) + 92);
        row[crc] ^= 1;
        CHECK(pwrite(fd, row + crc, 1, (off_t)file->ub.index.offset + (row + crc - index)) == 1);
        close(fd);
        free(index);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    reader_datasets known;
    int status = reader_view_all(ckpt, &ckpt->tensors[i], &known, &failure);
    if (reader_checkpoint_home(ckpt, i) == s->rank) {
        CHECK(status == DCP_OK);
    } else {
        CHECK(status == DCP_ERR_CORRUPT && !strcmp(failure.tensor, "/model/blocks"));
        CHECK(strstr(failure.message, "when the step was opened"));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_checkpoint_close(ckpt);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    every_world(&s, &g);
    hidden_files(&s, &g);
    changed_rows(&s, &g);
    given_free(&g);
    return scratch_end(&s);
}
