/* Rotary positions: frequencies and scale are those of transformers 5.24, for the values of real
 * configs and for each option. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "models/families.h"

#define SMALL                                                                                      \
    "\"vocab_size\":300,\"intermediate_size\":112,\"num_hidden_layers\":1,\"model_type\":"         \
    "\"llama\""
#define HEADS_OF_64 "\"hidden_size\":256,\"num_attention_heads\":4"

static int read_config(const char *members, model_config *out, dcp_error *err) {
    char text[1024];
    snprintf(text, sizeof text, "{" SMALL ",%s}", members);
    json_t *config = json_loads(text, 0, NULL);
    assert_non_null(config);
    const int status = model_config_read(config, out, err);
    json_decref(config);
    return status;
}

/* pairs: radians per position of pairs 0, n/4, n/3, n/2, 2n/3, 3n/4 and n - 1 */
typedef struct expected {
    const char *name, *members;
    double scale;
    float pairs[7];
} expected;

static const expected scalings[] = {
    {"Llama-3.2-1B",
     "\"hidden_size\":2048,\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64,"
     "\"max_position_embeddings\":131072,\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":32.0,"
     "\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,"
     "\"rope_type\":\"llama3\"}",
     1.0,
     {1.0f, 0.0376060307f, 0.0165604409f, 0.000429556705f, 5.68723226e-06f, 1.66196742e-06f,
      9.41830649e-08f}},
    {"Qwen2.5-7B with its yarn",
     "\"hidden_size\":3584,\"num_attention_heads\":28,\"max_position_embeddings\":32768,"
     "\"rope_theta\":1000000.0,\"rope_scaling\":{\"factor\":4.0,"
     "\"original_max_position_embeddings\":32768,\"type\":\"yarn\"}",
     1.138629436111989,
     {1.0f, 0.0316227786f, 0.0107460786f, 0.000602941145f, 2.88695483e-05f, 7.90569356e-06f,
      3.10234441e-07f}},
    {"all of yarn's options",
     HEADS_OF_64 ",\"max_position_embeddings\":163840,\"rope_theta\":10000,\"rope_scaling\":{"
                 "\"rope_type\":\"yarn\",\"factor\":40.0,\"mscale\":0.707,\"mscale_all_dim\":1.0,"
                 "\"beta_fast\":16,\"beta_slow\":2,\"original_max_position_embeddings\":4096,"
                 "\"truncate\":false}",
     0.9210423553163399,
     {1.0f, 0.100000001f, 0.0562341288f, 0.00579010462f, 5.92843462e-05f, 2.49999994e-05f,
      3.33380353e-06f}},
    {"yarn's factor from the positions, and the older spelling's theta is not the newer one's",
     HEADS_OF_64 ",\"max_position_embeddings\":65536,\"rope_theta\":10000,\"rope_parameters\":{"
                 "\"rope_type\":\"yarn\",\"factor\":null,\"original_max_position_embeddings\":4096,"
                 "\"attention_factor\":1.25,\"rope_theta\":50000}",
     1.25,
     {1.0f, 0.0668740347f, 0.0286936387f, 0.00167705095f, 5.15443353e-05f, 1.86918605e-05f,
      1.75288255e-06f}},
    {"first positions that are not given are all",
     HEADS_OF_64 ",\"max_position_embeddings\":4096,\"rope_theta\":10000,\"rope_scaling\":{"
                 "\"rope_type\":\"yarn\",\"factor\":2.0}",
     1.0693147180559945,
     {1.0f, 0.100000001f, 0.0562341288f, 0.0076923077f, 0.00136810029f, 0.000500000024f,
      6.66760752e-05f}},
    {"first positions beside the scaling go first",
     HEADS_OF_64
     ",\"max_position_embeddings\":4096,\"original_max_position_embeddings\":1024,"
     "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2.0,\"low_freq_factor\":1.0,"
     "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":4096}",
     1.0,
     {1.0f, 0.100000001f, 0.0562341288f, 0.00604957715f, 0.00118568691f, 0.000500000024f,
      6.66760752e-05f}},
    {"linear",
     HEADS_OF_64 ",\"rope_parameters\":{},\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}",
     1.0,
     {0.400000006f, 0.0399999991f, 0.0224936511f, 0.00399999972f, 0.000948549539f, 0.000400000019f,
      5.33408602e-05f}},
    {"none; an empty scaling is none, and rope_type goes before type",
     HEADS_OF_64 ",\"rope_scaling\":{},\"rope_parameters\":{\"rope_type\":\"default\","
                 "\"type\":\"linear\",\"factor\":2.5}",
     1.0,
     {1.0f, 0.1f, 0.0562341325f, 0.01f, 0.00237137371f, 0.001f, 0.000133352143f}},
};

static void as_transformers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        const expected *e = &scalings[i];
        model_config c = {0};
        float got[64];
        assert_int_equal(read_config(e->members, &c, NULL), DCP_OK);
        const size_t n = c.head_dim / 2;
        const size_t at[7] = {0, n / 4, n / 3, n / 2, 2 * n / 3, 3 * n / 4, n - 1};
        assert_true(n <= 64);
        model_rope_frequencies(&c.rope, c.head_dim, got);
        for (size_t pair = 0; pair < 7; pair++)
            if (!(fabsf(got[at[pair]] / e->pairs[pair] - 1.0f) < 4e-7f))
                fail_msg("%s: pair %zu is %.9g, not %.9g", e->name, at[pair], (double)got[at[pair]],
                         (double)e->pairs[pair]);
        if (!(fabs(c.rope.scale / e->scale - 1.0) < 1e-12))
            fail_msg("%s: scale %.17g, not %.17g", e->name, c.rope.scale, e->scale);
        model_config_free(&c);
    }
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *members;
        int status;
        const char *named;
    } cases[] = {
        {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", DCP_ERR_UNSUPPORTED,
         "rope_scaling.rope_type \"dynamic\" is not supported (only default, linear, llama3, "
         "yarn); "
         "to train without these features, add: model.rope_scaling.rope_type=default"},
        {"\"rope_parameters\":{\"rope_type\":\"longrope\"}", DCP_ERR_UNSUPPORTED,
         "rope_parameters.rope_type \"longrope\""},
        {"\"rope_parameters\":{\"rope_type\":\"proportional\"}", DCP_ERR_UNSUPPORTED,
         "\"proportional\""},
        {"\"rope_scaling\":{\"type\":7}", DCP_ERR_UNSUPPORTED, "rope_scaling.rope_type"},
        {"\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4}}", DCP_ERR_UNSUPPORTED,
         "rope_parameters.full_attention: rotations that differ"},
        {"\"rope_parameters\":{\"partial_rotary_factor\":0.5}", DCP_ERR_UNSUPPORTED,
         "model.rope_parameters.partial_rotary_factor=1"},
        {"\"rope_scaling\":7", DCP_ERR_ARG, "rope_scaling is not an object"},
        {"\"rope_scaling\":{\"type\":\"linear\"}", DCP_ERR_ARG, "rope_scaling.factor is missing"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}", DCP_ERR_ARG,
         "rope_scaling.factor is 0, which is too small"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}", DCP_ERR_ARG,
         "rope_scaling.factor is not a number"},
        {"\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"high_freq_factor\":4}", DCP_ERR_ARG,
         "rope_scaling.low_freq_factor is missing"},
        {"\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,"
         "\"high_freq_factor\":4}",
         DCP_ERR_ARG, "high_freq_factor 4 is not above low_freq_factor 4"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":1}", DCP_ERR_ARG,
         "rope_scaling.truncate is neither true nor false"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"attention_factor\":-1}", DCP_ERR_ARG,
         "rope_scaling.attention_factor is -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char members[512];
        model_config c = {0};
        dcp_error err = {0};
        snprintf(members, sizeof members, HEADS_OF_64 ",%s", cases[i].members);
        assert_int_equal(read_config(members, &c, &err), cases[i].status);
        if (!strstr(err.message, cases[i].named))
            fail_msg("\"%s\" does not name %s", err.message, cases[i].named);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_transformers),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
