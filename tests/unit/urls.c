/* scheme:// is refused by name in place of any path, and nothing is made. */
#include "support/store_fixture.h"

#include "dcp/inspect.h"
#include "dcp/safetensors.h"

#define REFUSES(call)                                                                              \
    do {                                                                                           \
        dcp_error err = {0};                                                                       \
        assert_int_equal(call, DCP_ERR_UNSUPPORTED);                                               \
        assert_int_equal(err.status, DCP_ERR_UNSUPPORTED);                                         \
        assert_non_null(strstr(err.message, url));                                                 \
    } while (0)

static void refuse_all(struct scratch *s, const char *url) {
    dcp_store *store;
    dcp_checkpoint *ckpt;
    dcp_step *steps;
    dcp_pin *pin;
    dcp_tiers *tiers;
    dcp_tiers_step *found;
    dcp_st_reader *reader;
    dcp_st_writer *writer;
    dcp_glance glance = DCP_GLANCE_INIT;
    const dcp_tier tier = {.size = sizeof tier, .path = url, .every = 1};
    const dcp_tiers_step which = {0};
    const dcp_tensor tensor = {"w", DCP_F32, 1, {4}};
    char *json;
    size_t n;
    int fd;
    uint64_t bytes;
    REFUSES(dcp_store_open(s->comm, url, NULL, &store, &err));
    REFUSES(dcp_store_check_free(url, &err));
    REFUSES(dcp_checkpoint_open(s->comm, url, &ckpt, &err));
    REFUSES(dcp_checkpoint_open_private(s->comm, url, &ckpt, &err));
    REFUSES(dcp_steps_list(url, &steps, &n, &err));
    REFUSES(dcp_step_pin(url, &pin, &err));
    REFUSES(dcp_step_glance(url, &glance, &err));
    REFUSES(dcp_about_read(url, &json, &err));
    REFUSES(dcp_verify(url, NULL, &err));
    REFUSES(dcp_tiers_open(s->comm, &tier, 1, NULL, &tiers, &err));
    REFUSES(dcp_tiers_steps(s->comm, &tier, 1, &found, &n, &err));
    REFUSES(dcp_tiers_open_step(s->comm, &tier, &which, &ckpt, &err));
    REFUSES(dcp_st_open(url, &reader, &err));
    REFUSES(dcp_st_open_incomplete(url, &reader, &err));
    REFUSES(dcp_st_open_file(url, "config.json", &fd, &bytes, &err));
    REFUSES(dcp_st_create(url, &tensor, 1, &writer, &err));
}

static void urls_are_no_folders(void **state) {
    struct scratch *s = *state;
    struct stat st;
    assert_int_equal(chdir(s->root), 0);
    refuse_all(s, "s3://bucket/run");
    refuse_all(s, "hdfs+x.1-y://host/run");
    assert_int_equal(stat("s3:", &st), -1);
    assert_int_equal(chdir("/"), 0);
}

static void other_names_are(void **state) {
    static const char *const names[] = {"./s3://run", "s3:/run", "://run", "1://run", "a b://run"};
    struct scratch *s = *state;
    assert_int_equal(chdir(s->root), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dcp_store *store = NULL;
        dcp_error err = {0};
        const int status = dcp_store_open(s->comm, names[i], NULL, &store, &err);
        assert_int_not_equal(status, DCP_ERR_UNSUPPORTED);
        dcp_store_close(store);
    }
    assert_int_equal(chdir("/"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {scratch_test(urls_are_no_folders),
                                       scratch_test(other_names_are)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
