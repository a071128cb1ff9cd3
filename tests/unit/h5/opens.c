/* HDF5 itself opens what was saved, with its own driver: every dtype, shapes of 0 to 8 dimensions,
 * empty tensors, no tensors at all; values, types and tables are correct. */
#include <hdf5.h>

#include "format/index.h"
#include "h5/types.h"
#include "support/store_fixture.h"

static const dcp_tensor shapes[] = {
    {"/model/dim0", DCP_F32, 0, {0}},
    {"/model/dim8", DCP_I16, 8, {2, 1, 3, 1, 2, 1, 1, 2}},
    {"/model/empty", DCP_F64, 2, {3, 0}},
    {"/model/sub/folder/w", DCP_F32, 2, {30, 70}},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* Element i of every tensor is i % 2 if it is boolean, otherwise i % 50. */
static void fill(const dcp_tensor *t, unsigned char *data) {
    static const unsigned char f16[][2] = {{0, 0}, {0, 0x3c}}, bf16[][2] = {{0, 0}, {0x80, 0x3f}};
    uint64_t size = dcp_dtype_bytes(t->dtype), n = dcp_tensor_bytes(t) / size;
    for (uint64_t i = 0; i < n; i++, data += size) {
        float f = (float)(i % 50);
        double d = f;
        uint64_t u = t->dtype == DCP_BOOL ? i % 2 : i % 50;
        if (t->dtype == DCP_F32)
            memcpy(data, &f, 4);
        else if (t->dtype == DCP_F64)
            memcpy(data, &d, 8);
        else if (t->dtype == DCP_F16 || t->dtype == DCP_BF16) /* only 0 and 1 */
            memcpy(data, t->dtype == DCP_F16 ? f16[i % 2] : bf16[i % 2], 2);
        else if (t->dtype == DCP_C64)
            memcpy(data, (float[]){f, -f}, 8);
        else if (t->dtype == DCP_C128)
            memcpy(data, (double[]){d, -d}, 16);
        else if (t->dtype == DCP_F8_E5M2)
            *data = i % 2 ? 0x3c : 0;
        else
            memcpy(data, &u, size);
    }
}

static int two_values(dcp_dtype t) {
    return t == DCP_F16 || t == DCP_BF16 || t == DCP_F8_E5M2 || t == DCP_BOOL;
}

static size_t list(dcp_tensor *out, char names[][32]) {
    size_t n = 0;
    for (dcp_dtype dtype = DCP_F64; dtype < DCP_DTYPE_COUNT; dtype++, n++) {
        snprintf(names[n], 32, "/dtypes/%s", dcp_dtype_name(dtype));
        out[n] = (dcp_tensor){names[n], dtype, 1, {101}};
    }
    for (size_t i = 0; i < SHAPES; i++) out[n++] = shapes[i];
    return n;
}

static void save(struct scratch *s, const dcp_tensor *tensors, size_t n) {
    dcp_state *state;
    unsigned char *data[64] = {0};
    dcp_error err = {0};
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    for (size_t i = 0; i < n; i++) {
        data[i] = malloc(dcp_tensor_bytes(&tensors[i]) + 1);
        fill(&tensors[i], data[i]);
        assert_int_equal(dcp_state_add(state, &tensors[i], NULL, data[i], NULL), DCP_OK);
    }
    dcp_store *store = open_store(s, 0, 0);
    if (dcp_save(store, 1, state, "{\"a\":1}", NULL, NULL, &err)) fail_msg("%s", err.message);
    dcp_store_close(store);
    dcp_state_destroy(state);
    for (size_t i = 0; i < n; i++) free(data[i]);
}

static hid_t open_file(const struct scratch *s) {
    char path[200];
    snprintf(path, sizeof path, "%s/step-00000001/state.h5", s->dir);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

/* The type that h5py uses for complex128. */
static hid_t complex_doubles(void) {
    hid_t type = H5Tcreate(H5T_COMPOUND, 16);
    assert_true(H5Tinsert(type, "r", 0, H5T_NATIVE_DOUBLE) >= 0);
    assert_true(H5Tinsert(type, "i", 8, H5T_NATIVE_DOUBLE) >= 0);
    return type;
}

static void check_tensor(hid_t file, const dcp_tensor *t) {
    hid_t dataset = H5Dopen2(file, t->path, H5P_DEFAULT), space = H5Dget_space(dataset);
    hid_t type = H5Dget_type(dataset);
    hsize_t dims[DCP_MAX_DIMS];
    assert_int_equal(H5Sget_simple_extent_ndims(space), t->ndim);
    H5Sget_simple_extent_dims(space, dims, NULL);
    for (uint32_t d = 0; d < t->ndim; d++) assert_int_equal(dims[d], t->shape[d]);
    assert_int_equal(H5Tget_size(type), dcp_dtype_bytes(t->dtype));
    assert_int_equal(H5Aexists(dataset, "dtype"),
                     t->dtype == DCP_F8_E4M3 || t->dtype == DCP_F8_E8M0);
    H5T_class_t class = H5Tget_class(type);
    assert_int_equal(class, t->dtype == DCP_BOOL      ? H5T_ENUM
                            : t->dtype <= DCP_BF16    ? H5T_FLOAT
                            : t->dtype == DCP_F8_E5M2 ? H5T_FLOAT
                            : t->dtype == DCP_C64     ? H5T_COMPOUND
                            : t->dtype == DCP_C128    ? H5T_COMPOUND
                                                      : H5T_INTEGER);
    uint64_t n = dcp_tensor_bytes(t) / dcp_dtype_bytes(t->dtype);
    double *values = calloc(2 * n + 1, sizeof *values);
    hid_t as = class == H5T_ENUM ? type : H5T_NATIVE_DOUBLE, both = complex_doubles();
    if (class == H5T_COMPOUND) as = both;
    assert_true(H5Dread(dataset, as, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    for (uint64_t i = 0; i < n; i++) {
        double value = class == H5T_ENUM ? ((signed char *)values)[i] : values[i];
        if (class == H5T_COMPOUND) {
            value = values[2 * i];
            assert_true(values[2 * i + 1] == -value);
        }
        assert_true(value == (double)(two_values(t->dtype) ? i % 2 : i % 50));
    }
    free(values);
    H5Tclose(both);
    H5Tclose(type);
    H5Sclose(space);
    H5Dclose(dataset);
}

static void hdf5_reads_every_tensor(void **state) {
    struct scratch *s = *state;
    dcp_tensor tensors[DCP_DTYPE_COUNT + SHAPES];
    char names[DCP_DTYPE_COUNT][32];
    size_t n = list(tensors, names);
    save(s, tensors, n);
    hid_t file = open_file(s);
    for (size_t i = 0; i < n; i++) check_tensor(file, &tensors[i]);
    H5Fclose(file);
}

static hsize_t rows_of(hid_t file, const char *path) {
    hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT), space = H5Dget_space(dataset);
    assert_true(dataset >= 0);
    hssize_t rows = H5Sget_simple_extent_npoints(space);
    H5Sclose(space);
    H5Dclose(dataset);
    return (hsize_t)rows;
}

static void hdf5_reads_the_tables(void **state) {
    struct scratch *s = *state;
    dcp_tensor tensors[DCP_DTYPE_COUNT + SHAPES];
    char names[DCP_DTYPE_COUNT][32], *table;
    size_t n = list(tensors, names);
    save(s, tensors, n);
    hid_t file = open_file(s);
    assert_int_equal(rows_of(file, "/dcp/index"), n);
    assert_int_equal(rows_of(file, "/dcp/blocks"), n - 1); /* one is empty */
    hid_t index = H5Dopen2(file, "/dcp/index", H5P_DEFAULT), type = H5Dget_type(index);
    assert_int_equal(H5Tget_nmembers(type), 7);
    size_t row = H5Tget_size(type);
    assert_int_equal(row, format_index_row_bytes(32, DCP_LAYOUT_GLOBAL));
    table = malloc(n * row);
    assert_true(H5Dread(index, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, table) >= 0);
    for (size_t i = 1; i < n; i++) assert_true(strcmp(table + (i - 1) * row, table + i * row) < 0);
    free(table);
    H5Tclose(type);
    H5Dclose(index);
    hid_t meta = H5Dopen2(file, "/dcp/meta", H5P_DEFAULT);
    char *text = calloc(65537, 1);
    type = H5Dget_type(meta);
    assert_int_equal(H5Tget_size(type), 65536);
    assert_true(H5Dread(meta, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0);
    assert_memory_equal(text, "{\"a\":1,\"format\":1,\"step\":1}  ", 29);
    free(text);
    H5Tclose(type);
    H5Dclose(meta);
    H5Fclose(file);
}

/* Renames the step, as a writer does that removes it in the meantime: nothing in it is damaged. */
static void lose_name(void *ctx, uint64_t done, uint64_t total) {
    char away[200];
    snprintf(away, sizeof away, "%s.away", (const char *)ctx);
    if (done <= total) rename(ctx, away);
}

static void no_damage(void *ctx, const char *what) { fail_msg("%s: %s", (char *)ctx, what); }

static void a_state_without_tensors_is_one(void **state) {
    struct scratch *s = *state;
    save(s, NULL, 0);
    hid_t file = open_file(s);
    assert_int_equal(rows_of(file, "/dcp/index"), 0);
    assert_int_equal(rows_of(file, "/dcp/blocks"), 0);
    H5Fclose(file);
    dcp_checkpoint *ckpt;
    assert_int_equal(dcp_checkpoint_open(s->comm, s->dir, &ckpt, NULL), DCP_OK);
    assert_int_equal(dcp_checkpoint_tensors(ckpt), 0);
    assert_int_equal(dcp_verify(dcp_checkpoint_path(ckpt), NULL, NULL), DCP_OK);
    const dcp_verify_options loses = {.size = sizeof loses,
                                      .on_damage = no_damage,
                                      .ctx = s->dir,
                                      .on_progress = lose_name,
                                      .progress_ctx = (void *)(uintptr_t)dcp_checkpoint_path(ckpt)};
    assert_int_equal(dcp_verify(dcp_checkpoint_path(ckpt), &loses, NULL), DCP_ERR_NOT_FOUND);
    dcp_checkpoint_close(ckpt);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(hdf5_reads_every_tensor),
        scratch_test(hdf5_reads_the_tables),
        scratch_test(a_state_without_tensors_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
