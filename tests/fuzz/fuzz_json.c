/* Everything that is plain JSON. The first byte says how the rest is read: as an object that
 * callers pass, as about.json (whose checksum is recomputed), or as the index of a folder of
 * safetensors files. */
#include "core/crc64.h"
#include "core/json.h"
#include "dcp/checkpoint.h"
#include "dcp/safetensors.h"
#include "format/about.h"
#include "fuzz.h"

static uint64_t count_values(const json_t *value) {
    uint64_t n = 1;
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member) n += count_values(member);
    json_object_foreach((json_t *)(uintptr_t)value, key, member) n += count_values(member);
    return n;
}

/* Canonical text can be read, and is its own canonical form; values are counted without reading. */
static void canonical(const char *text, size_t bytes) {
    json_t *value = NULL, *back = NULL;
    dcp_error err = {0};
    int status = core_json_parse_object(text, bytes, &value, &err);
    PROMISE(err.status == status && !*err.message == !status);
    if (status) return;
    PROMISE(core_json_count_values(text, bytes) == count_values(value));
    char *once = core_json_canonical(value);
    PROMISE(once && !core_json_parse_object(once, strlen(once), &back, NULL));
    char *twice = core_json_canonical(back);
    PROMISE(twice && !strcmp(once, twice) && json_equal(value, back));
    free(once);
    free(twice);
    json_decref(value);
    json_decref(back);
}

#define TAIL ",\n  \"crc64\": \"0000000000000000\"\n}\n"

static void about(const char *text, size_t bytes) {
    dcp_error err = {0};
    char *file = malloc(bytes + sizeof TAIL), digits[17], *json = NULL;
    PROMISE(file);
    memcpy(file, text, bytes);
    memcpy(file + bytes, TAIL, sizeof TAIL);
    bytes += sizeof TAIL - 1;
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)core_crc64(file, bytes));
    memcpy(file + bytes - 20, digits, 16);
    fuzz_file("about.json", file, bytes, 0);
    int status = dcp_about_read(fuzz_folder(), &json, &err);
    PROMISE(err.status == status && !*err.message == !status);
    PROMISE(format_about_check(fuzz_folder(), NULL, NULL) == status);
    if (!status) PROMISE(json && *json == '{');
    free(json);
    free(file);
}

#define ONE(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"

static void one_tensor(const char *file, const char *header) {
    char bytes[128] = {(char)strlen(header)};
    memcpy(bytes + 8, header, strlen(header));
    fuzz_file(file, bytes, 8 + strlen(header), 1);
}

static void index_of_files(const char *text, size_t bytes) {
    static int made;
    dcp_error err = {0};
    dcp_st_reader *reader = NULL;
    if (!made) {
        one_tensor("1.safetensors", ONE("a"));
        one_tensor("2.safetensors", ONE("b"));
        made = 1;
    }
    fuzz_file("model.safetensors.index.json", text, bytes, 0);
    int status = dcp_st_open(fuzz_folder(), &reader, &err);
    PROMISE(err.status == status && !*err.message == !status && !reader == !!status);
    if (!status) PROMISE(dcp_st_tensors(reader) <= 2);
    dcp_st_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const readers[])(const char *, size_t) = {canonical, about, index_of_files};
    if (size) readers[data[0] % 3]((const char *)data + 1, size - 1);
    return 0;
}
