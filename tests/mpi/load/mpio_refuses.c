/* HDF5's metadata are not trusted: a load through HDF5 refuses a file whose metadata was damaged
 * before HDF5 opens it, and one whose metadata has correct checksums but names other bytes: another
 * place in the file, another file, another shape. The other engine reads no metadata of HDF5. */
#include <hdf5.h>
#include <sys/stat.h>

#include "core/crc64.h"
#include "reader/checkpoint.h"
#include "support/scratch.h"

#define STEP "store/step-00000005"

static char step[PATH_MAX], file[PATH_MAX + 16], other[PATH_MAX];

static int load(const scratch *s, const given *g, dcp_engine engine, dcp_error *err) {
    held h;
    dcp_checkpoint *ckpt = NULL;
    dcp_load_options options = {.size = sizeof options, .engine = engine};
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(dcp_checkpoint_open(s->comm, step, &ckpt, err) == DCP_OK);
    held_make(&h, g, ROWS, s->rank, s->size, 0);
    int status = dcp_load_with(ckpt, h.state, &options, NULL, err);
    if (!status) CHECK(held_is_given(&h, g));
    held_free(&h);
    dcp_checkpoint_close(ckpt);
    MPI_Barrier(MPI_COMM_WORLD);
    return status;
}

static void copy(const char *from, const char *to) {
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "cp %s %s", from, to);
    CHECK(system(command) == 0);
}

/* Flips a bit `skip` bytes after the first `needle` in the file. */
static void flip(const scratch *s, const char *needle, size_t bytes, size_t skip) {
    size_t n;
    if (s->rank) return;
    unsigned char *data = scratch_read(s, STEP "/state.h5", &n),
                  *at = memmem(data, n, needle, bytes);
    CHECK(at);
    at[skip] ^= 4;
    int fd = open(file, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, at + skip, 1, at + skip - data) == 1);
    close(fd);
    free(data);
}

static void damaged_metadata(const scratch *s, const given *g) {
    static const struct {
        const char *needle;
        size_t bytes, skip;
    } structures[] = {{"\x89HDF\r\n\x1a\n", 8, 8}, {"TREE", 4, 6}, {"HEAP", 4, 9}, {"SNOD", 4, 8}};
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++) {
        dcp_error failure = {0};
        flip(s, structures[i].needle, structures[i].bytes, structures[i].skip);
        int status = load(s, g, DCP_ENGINE_MPIO, &failure);
        check_same_failure(status, DCP_ERR_CORRUPT, &failure, "HDF5 metadata or padding");
        SUCCEEDS(load(s, g, DCP_ENGINE_DIRECT, err));
        flip(s, structures[i].needle, structures[i].bytes, structures[i].skip);
        SUCCEEDS(load(s, g, DCP_ENGINE_MPIO, err));
    }
}

static int by_offset(const void *a, const void *b) {
    const format_row *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Restores the file's length and checksums, as an attacker would. */
static void seal(const scratch *s) {
    size_t n;
    format_userblock ub;
    format_row *rows;
    struct stat st;
    CHECK(stat(file, &st) == 0 && truncate(file, (st.st_size + 4095) / 4096 * 4096) == 0);
    unsigned char *data = scratch_read(s, STEP "/state.h5", &n);
    format_file f = format_file_of(strdup(other)); /* the tables are the same there */
    SUCCEEDS(format_tables_read(&f, err));
    ub = f.ub;
    rows = f.rows;
    qsort(rows, ub.rows, sizeof *rows, by_offset);
    uint64_t raw = 0, at = USERBLOCK_BYTES, outside = 0;
    for (size_t i = 0; i <= ub.rows; i++) {
        uint64_t end = i < ub.rows ? rows[i].offset : n;
        if (i < ub.rows && !rows[i].bytes) continue;
        raw = core_crc64_raw(raw, data + at, end - at);
        outside += end - at;
        if (i < ub.rows) at = end + rows[i].bytes;
    }
    ub.file_bytes = n;
    ub.outside_crc = core_crc64_finish(raw, outside);
    format_userblock_encode(&ub, data);
    int fd = open(file, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, data, USERBLOCK_BYTES, 0) == USERBLOCK_BYTES);
    close(fd);
    format_tables_free(&f);
    free(data);
}

/* Changes to the file's HDF5 metadata, made with HDF5. */
static void swap_datasets(hid_t h5) {
    CHECK(H5Lmove(h5, "/model/one", h5, "/model/tmp", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(H5Lmove(h5, "/model/vector", h5, "/model/one", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(H5Lmove(h5, "/model/tmp", h5, "/model/vector", H5P_DEFAULT, H5P_DEFAULT) >= 0);
}

static void link_to_another_file(hid_t h5) {
    CHECK(H5Ldelete(h5, "/model/one", H5P_DEFAULT) >= 0);
    CHECK(H5Lcreate_external(other, "/model/one", h5, "/model/one", H5P_DEFAULT, H5P_DEFAULT) >= 0);
}

/* Gives the tensor's name to another dataset of the same type and shape. */
static void replace(hid_t h5, hid_t plist) {
    hsize_t one = 1;
    hid_t space = H5Screate_simple(1, &one, NULL);
    hid_t set =
        H5Dcreate2(h5, "/model/new", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    CHECK(set >= 0 && H5Ldelete(h5, "/model/one", H5P_DEFAULT) >= 0);
    CHECK(H5Lmove(h5, "/model/new", h5, "/model/one", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Dclose(set);
    H5Pclose(plist);
    H5Sclose(space);
}

static void dataset_elsewhere(hid_t h5) {
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    CHECK(H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY) >= 0);
    replace(h5, plist);
}

static void dataset_in_another_file(hid_t h5) {
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    CHECK(H5Pset_external(plist, other, 8192, 4) >= 0);
    replace(h5, plist);
}

static void missing_dataset(hid_t h5) { CHECK(H5Ldelete(h5, "/model/one", H5P_DEFAULT) >= 0); }

static void hostile_metadata(const scratch *s, const given *g) {
    static void (*const changes[])(hid_t) = {swap_datasets, link_to_another_file, dataset_elsewhere,
                                             dataset_in_another_file, missing_dataset};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        dcp_error failure = {0};
        if (s->rank == 0) {
            copy(other, file);
            hid_t h5 = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
            CHECK(h5 >= 0);
            changes[i](h5);
            CHECK(H5Fclose(h5) >= 0);
            seal(s);
        }
        int status = load(s, g, DCP_ENGINE_MPIO, &failure);
        check_same_failure(status, DCP_ERR_CORRUPT, &failure, "HDF5 metadata: dataset /model/");
    }
    if (s->rank == 0) copy(other, file);
    SUCCEEDS(load(s, g, DCP_ENGINE_MPIO, err));
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    snprintf(step, sizeof step, "%s/%s", s.root, STEP);
    snprintf(file, sizeof file, "%s/state.h5", step);
    snprintf(other, sizeof other, "%s/other.h5", s.root);
    scratch_save(&s, s.comm, "store", &g, BLOCKS, DCP_LAYOUT_GLOBAL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s.rank == 0) copy(file, other);
    damaged_metadata(&s, &g);
    hostile_metadata(&s, &g);
    given_free(&g);
    return scratch_end(&s);
}
