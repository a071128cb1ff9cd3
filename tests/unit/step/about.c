/* about.json: its content, and that each flipped bit, missing byte and surplus byte is detected. */
#include <jansson.h>

#include "format/about.h"
#include "support/store_fixture.h"

static size_t read_about(const struct scratch *s, char *text, size_t room) {
    char path[200];
    snprintf(path, sizeof path, "%s/about.json", s->root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, room, file);
    fclose(file);
    assert_in_range(bytes, 1, room - 1);
    return bytes;
}

static int check_bytes(const struct scratch *s, const char *text, size_t bytes) {
    char path[200];
    snprintf(path, sizeof path, "%s/about.json", s->root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return format_about_check(s->root, NULL, NULL);
}

static void it_says_who_wrote_the_step(void **state) {
    struct scratch *s = *state;
    char text[4096] = "";
    assert_int_equal(
        format_about_write(s->root, "tool", 4, "{\"gb_per_s\": 2.5, \"ranks\": 9}", NULL), 0);
    assert_int_equal(format_about_check(s->root, NULL, NULL), DCP_OK);
    json_t *about = json_loadb(text, read_about(s, text, sizeof text), 0, NULL);
    assert_non_null(about);
    assert_string_equal(json_string_value(json_object_get(about, "tool")), "tool");
    assert_string_equal(json_string_value(json_object_get(about, "version")), dcp_version());
    assert_int_equal(json_integer_value(json_object_get(about, "ranks")), 4);
    assert_int_equal(json_integer_value(json_object_get(about, "pid")), getpid());
    assert_true(json_real_value(json_object_get(about, "gb_per_s")) == 2.5);
    assert_int_equal(strlen(json_string_value(json_object_get(about, "time"))), 20);
    assert_non_null(json_object_get(about, "host"));
    json_decref(about);
}

static void every_bit_and_byte_counts(void **state) {
    struct scratch *s = *state;
    char text[4096] = "";
    assert_int_equal(format_about_write(s->root, "tool", 4, "{\"note\": \"\\u00e9\"}", NULL),
                     DCP_OK);
    size_t bytes = read_about(s, text, sizeof text);
    assert_int_equal(check_bytes(s, text, bytes), DCP_OK);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(check_bytes(s, text, bytes), DCP_ERR_CORRUPT);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t shorter = 0; shorter < bytes; shorter++)
        assert_int_equal(check_bytes(s, text, shorter), DCP_ERR_CORRUPT);
    static const char extra[] = {'\0', '\n', ' ', '}', 'x'};
    for (size_t i = 0; i < sizeof extra; i++) {
        text[bytes] = extra[i];
        assert_int_equal(check_bytes(s, text, bytes + 1), DCP_ERR_CORRUPT);
        assert_int_equal(check_bytes(s, text + 1, bytes), DCP_ERR_CORRUPT);
    }
    assert_int_equal(check_bytes(s, text, bytes), DCP_OK);
}

static void what_is_no_file_is_refused(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_error err = {0};
    assert_int_equal(format_about_check(s->root, NULL, &err), DCP_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "about.json"));
    snprintf(path, sizeof path, "%s/about.json", s->root);
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_int_equal(format_about_check(s->root, NULL, &err), DCP_ERR_CORRUPT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(format_about_check(s->root, NULL, &err), DCP_ERR_CORRUPT);
    assert_int_not_equal(format_about_write(s->root, "tool", 1, "[1]", &err), DCP_OK);
    assert_int_not_equal(format_about_write(s->root, "tool", 1, NULL, &err), DCP_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(it_says_who_wrote_the_step),
        scratch_test(every_bit_and_byte_counts),
        scratch_test(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
