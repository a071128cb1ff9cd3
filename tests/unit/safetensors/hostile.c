/* Hostile safetensors files: each is refused with a message of its own. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "dcp/safetensors.h"
#include "support/folder_fixture.h"

static void write_file(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* Writes a file with this header, for which it claims `length` bytes, and `data_bytes` of data. */
static void write_tensors(const char *name, const char *header, size_t header_bytes,
                          uint64_t length, size_t data_bytes) {
    char *file = calloc(1, 8 + header_bytes + data_bytes + 1);
    assert_non_null(file);
    uint64_t le = htole64(length);
    memcpy(file, &le, 8);
    memcpy(file + 8, header, header_bytes);
    write_file(in_folder(name), file, 8 + header_bytes + data_bytes);
    free(file);
}

static void expect(const char *path, int status, const char *part) {
    dcp_error err = {0};
    dcp_st_reader *reader = NULL;
    assert_int_equal(dcp_st_open(path, &reader, &err), status);
    assert_null(reader);
    if (!strstr(err.message, part)) fail_msg("'%s' does not say '%s'", err.message, part);
}

static const struct {
    const char *header;
    size_t data_bytes;
    int status;
    const char *part;
} headers[] = {
    {"[]", 0, DCP_ERR_CORRUPT, "does not begin with '{'"},
    {" {}", 0, DCP_ERR_CORRUPT, "does not begin with '{'"},
    {"{\"a\":", 0, DCP_ERR_CORRUPT, "not JSON"},
    {"{} {}", 0, DCP_ERR_CORRUPT, "not JSON"},
    {"{\"a\\u0000b\":1}", 0, DCP_ERR_CORRUPT, "not JSON"},
    {"{\"\xff\xfe\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT,
     "not JSON"},
    {"{\"a\":1}", 0, DCP_ERR_CORRUPT, "'a' is not {dtype, shape, data_offsets}"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}}", 4, DCP_ERR_CORRUPT,
     "'a' is not {dtype, shape, data_offsets}"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT, "no dtype"},
    {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DCP_ERR_UNSUPPORTED,
     "unknown dtype 'F99'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT,
     "no shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
     DCP_ERR_UNSUPPORTED, "9 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT,
     "dimension 0 of its shape is not a size"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT,
     "dimension 0 of its shape is not a size"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}}", 4,
     DCP_ERR_CORRUPT, "not JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,4],\"data_offsets\":[0,4]}}", 4,
     DCP_ERR_CORRUPT, "its shape overflows"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
     DCP_ERR_CORRUPT, "its shape overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, DCP_ERR_CORRUPT,
     "not [begin, end]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, DCP_ERR_CORRUPT,
     "not [begin, end]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, DCP_ERR_CORRUPT,
     "not [begin, end]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, DCP_ERR_CORRUPT,
     "ends at byte 8 of the data, which has only 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, DCP_ERR_CORRUPT,
     "12 bytes according to its shape, but 8 according to its data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
     12, DCP_ERR_CORRUPT, "'a' and 'b' overlap"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
     12, DCP_ERR_CORRUPT, "a hole of 4 bytes before tensor 'b'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, DCP_ERR_CORRUPT,
     "a hole of 4 bytes before tensor 'a'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 9, DCP_ERR_CORRUPT,
     "5 bytes after the last tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     8, DCP_ERR_CORRUPT, "duplicate"},
    {"{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT,
     "is empty"},
    {"{\"..\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT,
     "stands for a folder"},
    {"{\"../a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT,
     "holds a '/'"},
    {"{\"a\\u002fb\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DCP_ERR_CORRUPT,
     "holds a '/'"},
    {"{\"a\" 1}", 0, DCP_ERR_CORRUPT, "':' is missing"},
    {"{\"a\":}", 0, DCP_ERR_CORRUPT, "a value is missing"},
    {"{\"a\":[", 0, DCP_ERR_CORRUPT, "a bracket without end"},
    {"{\"__metadata__\":{}]}", 0, DCP_ERR_CORRUPT, "',' or '}' is missing"},
    {"{\"a\":[},1}", 0, DCP_ERR_CORRUPT, "not JSON"},
    {"{\"a\\\"", 0, DCP_ERR_CORRUPT, "a string without end"},
    {"{\"a\\", 0, DCP_ERR_CORRUPT, "a string without end"},
    {"{\"a\":1,}", 0, DCP_ERR_CORRUPT, "'a' is not"},
    {"{\"__metadata__\":{},}", 0, DCP_ERR_CORRUPT, "a name is missing"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, DCP_ERR_CORRUPT, "duplicate __metadata__"},
    {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, DCP_ERR_CORRUPT, "duplicate"},
    {"{\"__metadata__\":[]}", 0, DCP_ERR_CORRUPT, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, DCP_ERR_CORRUPT, "__metadata__ 'k' is not a string"},
};

static void headers_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        size_t length = strlen(headers[i].header);
        write_tensors("t.safetensors", headers[i].header, length, length, headers[i].data_bytes);
        expect(in_folder("t.safetensors"), headers[i].status, headers[i].part);
    }
}

static void lengths_are_refused(void **state) {
    (void)state;
    write_file(in_folder("t.safetensors"), "1234567", 7);
    expect(in_folder("t.safetensors"), DCP_ERR_CORRUPT, "7 bytes are too few");
    write_tensors("t.safetensors", "{}", 2, 3, 0);
    expect(in_folder("t.safetensors"), DCP_ERR_CORRUPT, "claims 3 bytes, the file has only 10");
    write_tensors("t.safetensors", "{}", 2, 0, 0);
    expect(in_folder("t.safetensors"), DCP_ERR_CORRUPT, "does not begin with '{'");
    write_tensors("t.safetensors", "{}", 2, 100000001, 0);
    expect(in_folder("t.safetensors"), DCP_ERR_CORRUPT, "more than 100000000");
    write_tensors("t.safetensors", "{}", 2, UINT64_MAX, 0);
    expect(in_folder("t.safetensors"), DCP_ERR_CORRUPT, "more than 100000000");
}

static void deep_json_is_refused(void **state) {
    (void)state;
    static char deep[6 + 200000];
    memcpy(deep, "{\"a\":", 5);
    memset(deep + 5, '[', 200000);
    write_tensors("t.safetensors", deep, 200005, 200005, 0);
    expect(in_folder("t.safetensors"), DCP_ERR_CORRUPT, "not JSON");
}

static void odd_files_are_refused(void **state) {
    (void)state;
    expect(in_folder("nowhere"), DCP_ERR_NOT_FOUND, "nowhere");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    expect(in_folder("pipe"), DCP_ERR_IO, "not a regular file");
    expect(folder, DCP_ERR_NOT_FOUND, "neither model.safetensors nor");
}

#define TENSOR(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"

static const struct {
    const char *index;
    int status;
    const char *part;
} indexes[] = {
    {"{", DCP_ERR_CORRUPT, "not JSON"},
    {"{}", DCP_ERR_CORRUPT, "no weight_map"},
    {"{\"weight_map\":[]}", DCP_ERR_CORRUPT, "no weight_map"},
    {"{\"weight_map\":{\"a\":1}}", DCP_ERR_CORRUPT, "not in a file of this folder"},
    {"{\"weight_map\":{\"a\":\"\"}}", DCP_ERR_CORRUPT, "not in a file of this folder"},
    {"{\"weight_map\":{\"a\":\"..\"}}", DCP_ERR_CORRUPT, "not in a file of this folder"},
    {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", DCP_ERR_CORRUPT,
     "not in a file of this folder"},
    {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", DCP_ERR_CORRUPT, "not in a file of this folder"},
    {"{\"weight_map\":{\"a\":\"3.safetensors\"}}", DCP_ERR_NOT_FOUND, "3.safetensors"},
    {"{\"weight_map\":{\"a\":\"1.safetensors\",\"x\":\"1.safetensors\"}}", DCP_ERR_CORRUPT,
     "names tensor 'x', which 1.safetensors does not hold"},
    {"{\"weight_map\":{\"x\":\"1.safetensors\"}}", DCP_ERR_CORRUPT,
     "omits tensor 'a', which 1.safetensors holds"},
    {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}",
     DCP_ERR_CORRUPT, "places tensor 'b' in 1.safetensors, but 2.safetensors holds it too"},
    {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}", DCP_ERR_CORRUPT,
     "duplicate"},
};

static void indexes_are_refused(void **state) {
    (void)state;
    write_tensors("1.safetensors", TENSOR("a"), strlen(TENSOR("a")), strlen(TENSOR("a")), 1);
    write_tensors("2.safetensors", TENSOR("b"), strlen(TENSOR("b")), strlen(TENSOR("b")), 1);
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        write_file(in_folder("model.safetensors.index.json"), indexes[i].index,
                   strlen(indexes[i].index));
        expect(folder, indexes[i].status, indexes[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_refused),  cmocka_unit_test(lengths_are_refused),
        cmocka_unit_test(deep_json_is_refused), cmocka_unit_test(odd_files_are_refused),
        cmocka_unit_test(indexes_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
