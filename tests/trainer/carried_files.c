/* A file of /files that is too large to be read into memory at once is refused by its name, and
 * leaves no text behind. */
#include "state/carried_files.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static carried_file file_of(uint64_t bytes, void *data) {
    carried_file file = {{"/files/tokenizer.json", DCP_U8, 1, {bytes}}, {{0}, {0}}, data};
    file.box = dcp_box_whole(&file.tensor);
    return file;
}

static void a_file_of_2_gib(void **state) {
    char before[] = "before", *text;
    uint64_t bytes;
    (void)state;
    for (uint64_t more = 0; more < 3; more++) {
        const carried_file file = file_of((uint64_t)INT_MAX + more, NULL);
        dcp_error err = {0};
        text = before;
        assert_int_equal(state_files_gather(&file, MPI_COMM_SELF, &text, &bytes, &err),
                         DCP_ERR_UNSUPPORTED);
        assert_null(text);
        assert_string_equal(err.tensor, "/files/tokenizer.json");
        assert_non_null(strstr(err.message, "less than 2 GiB"));
    }
}

static void a_small_one(void **state) {
    char data[] = {'{', '}', ' '}, *text = NULL;
    uint64_t bytes = 0;
    const carried_file file = file_of(sizeof data, data);
    (void)state;
    assert_int_equal(state_files_gather(&file, MPI_COMM_SELF, &text, &bytes, NULL), DCP_OK);
    assert_int_equal(bytes, sizeof data);
    assert_string_equal(text, "{} ");
    free(text);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_2_gib),
        cmocka_unit_test(a_small_one),
    };
    MPI_Init(&argc, &argv);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
