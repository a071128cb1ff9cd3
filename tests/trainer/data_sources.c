/* Several sources: shares of each cycle, epochs of each source, a sample as a function of its
 * number alone, and which source a message names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"
#include "data_folder.h"

enum { SEQUENCE = 4, SOURCES = 3, EACH = 20000, READ = 3 * DATA_CYCLE };

static const uint64_t lengths[SOURCES] = {4001, 401, 1201}; /* tokens */
static const config_source others[] = {{"1", 0.5}, {"2", 0.25}};
static const uint64_t counts[SOURCES] = {571, 286, 143}; /* of a cycle: 4/7, 2/7 and 1/7 */

/* Ids tell the source and the place. */
static int make_folder(void **state) {
    char dir[] = "sources-XXXXXX", name[2] = "0";
    if (!mkdtemp(dir) || chdir(dir) != 0) return -1;
    for (uint32_t k = 0; k < SOURCES; k++) {
        name[0] = (char)('0' + k);
        FILE *file = fopen(name, "w");
        if (!file) return -1;
        for (uint32_t i = 0; i < lengths[k]; i++) {
            const uint32_t id = k * EACH + i;
            fwrite(&id, sizeof id, 1, file);
        }
        fclose(file);
    }
    *state = strdup(dir);
    return 0;
}

static data_options options_of(const config_source *more, size_t n) {
    return (data_options){.type = "tokens",
                          .path = "0",
                          .dtype = "uint32",
                          .batch = 1,
                          .shape = {.tokens = SEQUENCE, .targets = SEQUENCE, .classes = 1 << 20},
                          .others = more,
                          .n_others = n};
}

static data *open_all(const config_source *more, size_t n) {
    const data_options options = options_of(more, n);
    data *d = NULL;
    dcp_error err;
    assert_int_equal(data_open(&options, &d, &err), DCP_OK);
    return d;
}

/* The first id of each of samples [first, first + n). */
static void read_ids(data *d, uint64_t seed, uint64_t first, uint64_t n, int32_t *out) {
    int32_t *ids = malloc(2 * n * SEQUENCE * sizeof *ids);
    const sample_batch batch = {.ids = ids, .targets = ids + n * SEQUENCE};
    uint64_t counted;
    dcp_error err;
    assert_int_equal(data_read(d, seed, first, n, &batch, &counted, &err), DCP_OK);
    assert_int_equal(counted, n * SEQUENCE);
    for (uint64_t i = 0; i < n; i++) out[i] = ids[i * SEQUENCE];
    free(ids);
}

static void shares(void **state) {
    (void)state;
    static int32_t ids[READ];
    data *d = open_all(others, SOURCES - 1);
    read_ids(d, 7, 0, READ, ids);
    for (uint64_t cycle = 0; cycle < READ; cycle += DATA_CYCLE) {
        uint64_t found[SOURCES] = {0}, early = 0;
        for (uint64_t i = 0; i < DATA_CYCLE; i++) {
            found[ids[cycle + i] / EACH]++;
            early += i < DATA_CYCLE / 2 && ids[cycle + i] / EACH == 0;
        }
        for (int k = 0; k < SOURCES; k++) assert_int_equal(found[k], counts[k]);
        assert_in_range(early, counts[0] / 2 - 80, counts[0] / 2 + 80); /* they are mixed */
    }
    data_close(d);
}

/* Each source's samples come once before any comes again. */
static void epochs(void **state) {
    (void)state;
    static int32_t ids[READ];
    data *d = open_all(others, SOURCES - 1);
    read_ids(d, 7, 0, READ, ids);
    for (int k = 0; k < SOURCES; k++) {
        const uint64_t samples = (lengths[k] - 1) / SEQUENCE;
        static unsigned char seen[EACH];
        uint64_t n = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < READ; i++) {
            if (ids[i] / EACH != k) continue;
            if (n % samples == 0) memset(seen, 0, sizeof seen);
            assert_int_equal(seen[ids[i] % EACH]++, 0);
            n++;
        }
        assert_true(n > samples);
    }
    assert_int_equal(data_samples(d), 1000 + 100 + 300);
    data_close(d);
}

static void numbers_alone(void **state) {
    (void)state;
    static int32_t ids[READ], other[READ];
    data *d = open_all(others, SOURCES - 1);
    read_ids(d, 7, 0, READ, ids);
    for (uint64_t g = READ; g-- > 0;) {
        int32_t id;
        read_ids(d, 7, g, 1, &id);
        assert_int_equal(id, ids[g]);
    }
    read_ids(d, 8, 0, READ, other);
    assert_memory_not_equal(ids, other, sizeof ids);
    data_close(d);
}

static uint64_t fingerprint_of(const config_source *more, size_t n) {
    data *d = open_all(more, n);
    const uint64_t fingerprint = data_fingerprint(d);
    data_close(d);
    return fingerprint;
}

static void fingerprints(void **state) {
    (void)state;
    const config_source heavier[] = {{"1", 0.6}, {"2", 0.25}}, turned[] = {{"2", 0.5}, {"1", 0.25}};
    const uint64_t own = fingerprint_of(others, 2);
    assert_int_equal(own, fingerprint_of(others, 2));
    assert_true(own != fingerprint_of(NULL, 0));
    assert_true(own != fingerprint_of(heavier, 2));
    assert_true(own != fingerprint_of(turned, 2));
}

static void fails(const config_source *more, size_t n, const char *why) {
    const data_options options = options_of(more, n);
    data *d;
    dcp_error err;
    assert_int_not_equal(data_open(&options, &d, &err), DCP_OK);
    if (!strstr(err.message, why)) fail_msg("%s, not %s", err.message, why);
}

static void wrong(void **state) {
    (void)state;
    const config_source missing[] = {{"1", 1}, {"nowhere", 1}},
                        little[] = {{"1", 1}, {"2", 0.0005}};
    fails(missing, 2, "data.sources[1].path: cannot read nowhere");
    fails(little, 2, "data.sources: by its weight, 2 gets less than one sample in 1000");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares), cmocka_unit_test(epochs),
                                       cmocka_unit_test(numbers_alone),
                                       cmocka_unit_test(fingerprints), cmocka_unit_test(wrong)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
