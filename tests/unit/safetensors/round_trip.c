/* What dcp_st_create writes, dcp_st_open reads: every dtype, scalars and empty tensors, one file or
 * several under an index; and an unfinished file leaves nothing behind. */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "dcp/safetensors.h"
#include "support/folder_fixture.h"

static int folders_fail; /* no folder can be synced */

/* Replaces the C library's function. */
DCP_API int fsync(int fd) {
    struct stat st;
    if (!folders_fail || fstat(fd, &st) || !S_ISDIR(st.st_mode)) return (int)syscall(SYS_fsync, fd);
    errno = EIO;
    return -1;
}

static uint8_t pattern(size_t tensor, uint64_t byte) { return (uint8_t)(tensor * 31 + byte * 7); }

static void write_all(const char *path, const dcp_tensor *tensors, size_t n) {
    dcp_st_writer *writer;
    assert_int_equal(dcp_st_create(path, tensors, n, &writer, NULL), DCP_OK);
    for (size_t i = 0; i < n; i++)
        for (uint64_t b = 0; b < dcp_tensor_bytes(&tensors[i]); b++) {
            uint8_t byte = pattern(i, b);
            assert_int_equal(dcp_st_write(writer, &byte, 1, NULL), DCP_OK);
        }
    assert_int_equal(dcp_st_finish(writer, NULL), DCP_OK);
}

static void check_tensor(dcp_st_reader *reader, const dcp_tensor *want, size_t i) {
    const dcp_tensor *got = dcp_st_find(reader, want->path);
    uint64_t bytes = dcp_tensor_bytes(want);
    assert_non_null(got);
    assert_int_equal(got->dtype, want->dtype);
    assert_int_equal(got->ndim, want->ndim);
    assert_memory_equal(got->shape, want->shape, want->ndim * sizeof *want->shape);
    uint8_t *data = malloc(bytes + 1);
    assert_int_equal(dcp_st_read(reader, want->path, 0, bytes, data, NULL), DCP_OK);
    for (uint64_t b = 0; b < bytes; b++) assert_int_equal(data[b], pattern(i, b));
    if (bytes > 2) {
        assert_int_equal(dcp_st_read(reader, want->path, 1, bytes - 2, data, NULL), DCP_OK);
        assert_int_equal(data[0], pattern(i, 1));
    }
    dcp_error err;
    assert_int_equal(dcp_st_read(reader, want->path, 1, bytes, data, &err), DCP_ERR_ARG);
    assert_int_equal(dcp_st_read(reader, want->path, UINT64_MAX, 2, data, &err), DCP_ERR_ARG);
    free(data);
}

static void every_dtype_comes_back(void **state) {
    (void)state;
    char names[DCP_DTYPE_COUNT][32];
    dcp_tensor tensors[DCP_DTYPE_COUNT];
    size_t n = 0;
    for (unsigned i = DCP_DTYPE_NONE + 1; i < DCP_DTYPE_COUNT; i++) {
        if (i == DCP_C128) continue;
        snprintf(names[i], sizeof names[i], "%c.\xc3\xa9\".%s", 'z' - (int)i,
                 dcp_dtype_name((dcp_dtype)i));
        tensors[n++] = (dcp_tensor){names[i], (dcp_dtype)i, 2, {3, 5}};
    }
    tensors[1].ndim = 0;
    tensors[2].shape[1] = 0;
    write_all(in_folder("a.safetensors"), tensors, n);

    dcp_st_reader *reader;
    assert_int_equal(dcp_st_open(in_folder("a.safetensors"), &reader, NULL), DCP_OK);
    assert_int_equal(dcp_st_tensors(reader), n);
    for (unsigned i = 0; i < n; i++) check_tensor(reader, &tensors[i], i);
    for (size_t i = 1; i < n; i++)
        assert_true(strcmp(dcp_st_tensor(reader, i - 1)->path, dcp_st_tensor(reader, i)->path) < 0);
    assert_null(dcp_st_find(reader, "nothing"));
    dcp_st_close(reader);
}

static void the_data_begins_aligned(void **state) {
    (void)state;
    char name[9] = "";
    for (size_t length = 1; length <= 8; length++) {
        name[length - 1] = 'n';
        dcp_tensor tensor = {name, DCP_U8, 1, {1}};
        write_all(in_folder("a.safetensors"), &tensor, 1);
        uint64_t header;
        FILE *f = fopen(in_folder("a.safetensors"), "rb");
        assert_int_equal(fread(&header, 8, 1, f), 1);
        fclose(f);
        assert_int_equal(le64toh(header) % 8, 0);
    }
}

static void a_file_without_tensors(void **state) {
    (void)state;
    write_all(in_folder("a.safetensors"), NULL, 0);
    dcp_st_reader *reader;
    assert_int_equal(dcp_st_open(in_folder("a.safetensors"), &reader, NULL), DCP_OK);
    assert_int_equal(dcp_st_tensors(reader), 0);
    assert_null(dcp_st_find(reader, "a"));
    dcp_st_close(reader);
}

static void write_index(const char *more) {
    FILE *f = fopen(in_folder("model.safetensors.index.json"), "w");
    fprintf(f,
            "{\"metadata\":{\"total_size\":24},\"weight_map\":{%s"
            "\"a\":\"model-00002-of-00002.safetensors\","
            "\"b\":\"model-00001-of-00002.safetensors\"}}",
            more);
    fclose(f);
}

static void an_index_joins_files(void **state) {
    (void)state;
    dcp_tensor a = {"a", DCP_F32, 1, {4}}, b = {"b", DCP_F32, 1, {2}};
    write_all(in_folder("model-00001-of-00002.safetensors"), &b, 1);
    write_all(in_folder("model-00002-of-00002.safetensors"), &a, 1);
    write_index("");
    dcp_st_reader *reader;
    assert_int_equal(dcp_st_open(folder, &reader, NULL), DCP_OK);
    assert_int_equal(dcp_st_tensors(reader), 2);
    check_tensor(reader, &a, 0);
    check_tensor(reader, &b, 0);
    assert_null(dcp_st_absent(reader, 0));
    dcp_st_close(reader);

    write_index("\"tied\":\"model-00002-of-00002.safetensors\","
                "\"c\":\"model-00002-of-00002.safetensors\",");
    assert_int_equal(dcp_st_open(folder, &reader, NULL), DCP_ERR_CORRUPT);
    assert_int_equal(dcp_st_open_incomplete(folder, &reader, NULL), DCP_OK);
    assert_int_equal(dcp_st_tensors(reader), 2);
    check_tensor(reader, &a, 0);
    assert_string_equal(dcp_st_absent(reader, 0), "c");
    assert_string_equal(dcp_st_absent(reader, 1), "tied");
    assert_null(dcp_st_absent(reader, 2));
    dcp_st_close(reader);
}

static void nothing_appears_unfinished(void **state) {
    (void)state;
    dcp_tensor tensor = {"a", DCP_U8, 1, {2}};
    dcp_st_writer *writer;
    const char *path = in_folder("late.safetensors");
    assert_int_equal(dcp_st_create(path, &tensor, 1, &writer, NULL), DCP_OK);
    assert_int_equal(dcp_st_write(writer, "x", 1, NULL), DCP_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(dcp_st_write(writer, "xy", 2, NULL), DCP_ERR_STATE);
    assert_int_equal(dcp_st_finish(writer, NULL), DCP_ERR_STATE);
    assert_int_not_equal(access(path, F_OK), 0);
    char command[700];
    snprintf(command, sizeof command, "! ls '%s' | grep -q tmp", folder);
    assert_int_equal(system(command), 0);
}

static void bad_tensors_are_refused(void **state) {
    (void)state;
    dcp_st_writer *writer = NULL;
    dcp_tensor twice[] = {{"a", DCP_U8, 1, {1}}, {"a", DCP_U8, 1, {1}}};
    dcp_tensor reserved = {"__metadata__", DCP_U8, 1, {1}}, latin = {"\xe9", DCP_U8, 1, {1}};
    dcp_tensor huge = {"a", DCP_U8, 2, {UINT64_MAX, 2}}, no_dtype = {"a", DCP_DTYPE_COUNT, 0, {0}};
    const char *path = in_folder("b.safetensors");
    assert_int_equal(dcp_st_create(path, twice, 2, &writer, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_st_create(path, &reserved, 1, &writer, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_st_create(path, &latin, 1, &writer, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_st_create(path, &huge, 1, &writer, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_st_create(path, &no_dtype, 1, &writer, NULL), DCP_ERR_ARG);
    dcp_tensor no_name = {"z", DCP_C128, 1, {1}};
    dcp_error err = {0};
    assert_int_equal(dcp_st_create(path, &no_name, 1, &writer, &err), DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "no type for C128, the type of 'z'"));
    path = in_folder("nowhere/x");
    assert_int_equal(dcp_st_create(path, NULL, 0, &writer, NULL), DCP_ERR_NOT_FOUND);
    assert_null(writer);
}

/* The file got its name before the folder could not be synced: the file exists, and the message
 * says so. */
static void a_name_that_may_not_last(void **state) {
    (void)state;
    const dcp_tensor tensor = {"w", DCP_U8, 1, {3}};
    const char *path = in_folder("unsure.safetensors");
    dcp_st_writer *writer;
    dcp_st_reader *reader;
    dcp_error err = {0};
    assert_int_equal(dcp_st_create(path, &tensor, 1, &writer, NULL), DCP_OK);
    const uint8_t data[] = {pattern(0, 0), pattern(0, 1), pattern(0, 2)};
    assert_int_equal(dcp_st_write(writer, data, sizeof data, NULL), DCP_OK);
    folders_fail = 1;
    assert_int_equal(dcp_st_finish(writer, &err), DCP_ERR_IO);
    folders_fail = 0;
    assert_non_null(strstr(err.message, "it is complete, but may disappear after a loss of"));
    assert_int_equal(err.system_error, EIO);
    assert_string_equal(err.path, path);
    assert_int_equal(dcp_st_open(path, &reader, NULL), DCP_OK);
    check_tensor(reader, &tensor, 0);
    dcp_st_close(reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_comes_back),     cmocka_unit_test(the_data_begins_aligned),
        cmocka_unit_test(a_file_without_tensors),     cmocka_unit_test(an_index_joins_files),
        cmocka_unit_test(nothing_appears_unfinished), cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(a_name_that_may_not_last),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
