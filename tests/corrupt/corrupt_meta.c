/* Meta that is not valid JSON, with correct checksums, is refused as meta. A folder's step, and a
 * shard's number, world and state id, are compared with it. */
#include "refused.h"

#include "forge.h"
#include "steps.h"

static void put_meta(forge *f, const char *text, size_t bytes) {
    uint64_t at = forge_at(f, UB_META), room = forge_length(f, UB_META);
    assert_true(bytes <= room);
    memset(f->bytes + at, ' ', room);
    memcpy(f->bytes + at, text, bytes);
    assert_int_equal(forge_put(f), 0);
}

static void check(const char *step, forge *f, const char *text, size_t bytes, const char *part) {
    put_meta(f, text, bytes);
    expect_refused(text, step, DCP_ERR_CORRUPT, part);
    assert_int_equal(forge_restore(f), 0);
}

static void text_that_is_no_meta(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", ": meta: not a JSON object"},
        {"[]", ": meta: not a JSON object"},
        {"3", ": meta: not a JSON object"},
        {"{", ": meta: not a JSON object"},
        {"{\"step\":3}x", ": meta: not a JSON object"},
        {"{\"step\":3,\"step\":3}", ": meta: not a JSON object"},
        {"{\"step\":3,\"x\":\"\xff\"}", ": meta: not a JSON object"},
        {"{\"step\":3,\"x\":\"\\ud800\"}", ": meta: not a JSON object"},
        {"{\"step\":3,\"x\":1e999}", ": meta: not a JSON object"},
        {"{\"step\":99999999999999999999}", ": meta: not a JSON object"},
        {"{}", ": meta: no step"},
        {"{\"step\":-1}", ": meta: no step"},
        {"{\"step\":3.0}", ": meta: no step"},
        {"{\"step\":\"3\"}", ": meta: no step"},
        {"{\"step\":4}", "meta: the folder's name has step 3, but meta has 4"},
    };
    forge f;
    assert_int_equal(forge_open(&f, global, "state.h5"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(global, &f, cases[i].text, strlen(cases[i].text), cases[i].part);
    check(global, &f, "{\"step\":3}\0hidden", 17, ": meta: it contains a NUL");
    static char deep[60000] = "{\"step\":3,\"x\":";
    memset(deep + strlen(deep), '[', sizeof deep - strlen(deep) - 1);
    check(global, &f, deep, strlen(deep), ": meta: not a JSON object");
    forge_close(&f);
    expect_loads(global);
}

#define SHARD(rank, id, world)                                                                     \
    "{\"format\":1,\"shard\":{\"rank\":" rank ",\"state_id\":\"" id "\",\"world\":" world          \
    "},\"step\":3}"

static void shards_that_are_not_this_one(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"step\":3}", "meta: names shard -1 of -1, not 0 of 1"},
        {"{\"shard\":[],\"step\":3}", "meta: names shard -1 of -1, not 0 of 1"},
        {SHARD("1", "0123456789abcdef", "2"), "meta: names shard 1 of 2, not 0 of 1"},
        {SHARD("-1", "0123456789abcdef", "1"), "meta: names shard -1 of 1, not 0 of 1"},
        {SHARD("4294967296", "0123456789abcdef", "1"), "meta: names shard 4294967296 of 1"},
        {SHARD("0", "0123456789abcdef", "9223372036854775807"), "not 0 of 1"},
        {SHARD("0", "0123456789abcde", "1"), "meta: names shard 0 of 1"},
    };
    forge f;
    findings found;
    assert_int_equal(forge_open(&f, sharded, "shard-00000-of-00001.h5"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(sharded, &f, cases[i].text, strlen(cases[i].text), cases[i].part);
    put_meta(&f, SHARD("0", "0123456789abcdef", "1"), strlen(SHARD("0", "0123456789abcdef", "1")));
    assert_int_equal(findings_of(sharded, &found), DCP_ERR_CORRUPT);
    assert_non_null(strstr(found.text, "the state id is not that of the tensors"));
    assert_int_equal(forge_restore(&f), 0);
    forge_close(&f);
    expect_loads(sharded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_is_no_meta),
        cmocka_unit_test(shards_that_are_not_this_one),
    };
    return cmocka_run_group_tests(tests, make_steps, remove_steps);
}
