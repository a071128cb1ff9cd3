/* dcp-train's configuration: defaults, overrides, and one clear message for each mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/reader.h"

#define MODEL "\"model\": {\"model_type\": \"llama\"}"
#define MINIMAL "{" MODEL ", \"data\": {\"path\": \"text\"}}"

static int load(const char *text, const char *override, config **out, dcp_error *err) {
    char path[] = "config-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    char *overrides[] = {(char *) override}, *lines;
    const int status = config_load(path, overrides, override != NULL, 1, out, &lines, err);
    free(lines);
    unlink(path);
    return status;
}

static void has_the_contracts_defaults(void **state) {
    (void)state;
    config *c;
    dcp_error err;
    assert_int_equal(load(MINIMAL, NULL, &c, &err), DCP_OK);
    assert_int_equal(config_micro_batches(c), 8);
    assert_int_equal(c->n_stores, 1);
    assert_string_equal(c->stores[0].path, "ckpt");
    assert_true(c->stores[0].every == 1 && c->stores[0].keep == 3 && !c->stores[0].is_private);
    assert_string_equal(c->metrics, "ckpt/metrics.jsonl");
    char *text;
    assert_int_equal(config_pack(c, &text, &err), DCP_OK);
    config *copy;
    assert_int_equal(config_unpack(text, &copy, &err), DCP_OK);
    assert_true(json_equal(c->tree, copy->tree) && copy->lr == 1e-3 && copy->sequence == 256);
    free(text);
    config_free(copy);
    config_free(c);
}

static void stores_come_before_the_directory(void **state) {
    (void)state;
    config *c;
    dcp_error err;
    assert_int_equal(load(MINIMAL,
                          "checkpoint={\"domain\":\"{env:RACK}\",\"stripe_count\":-1,"
                          "\"stripe_bytes\":1048576,\"stores\":["
                          "{\"path\":\"a\",\"redundancy\":\"rs(2)\",\"stripe_count\":2,"
                          "\"stripe_bytes\":65536},"
                          "{\"path\":\"b\",\"every\":5,\"keep\":0,\"domain\":\"{rank}\"}]}",
                          &c, &err),
                     DCP_OK);
    assert_int_equal(c->n_stores, 3);
    const dcp_tier *s = c->stores;
    assert_string_equal(s[0].path, "a");
    assert_string_equal(s[0].redundancy, "rs(2)");
    assert_true(s[0].is_private && s[0].every == 1 && s[0].keep == 2);
    assert_string_equal(s[0].domain, "{env:RACK}");
    assert_string_equal(s[1].domain, "{rank}");
    assert_null(s[2].domain);
    assert_string_equal(s[1].redundancy, "none");
    assert_true(s[1].is_private && s[1].every == 5 && s[1].keep == 0);
    assert_string_equal(s[2].path, "ckpt");
    assert_true(s[0].stripe_count == 2 && s[0].stripe_bytes == 65536);
    assert_true(s[1].stripe_count == 0 && s[1].stripe_bytes == 0);
    assert_true(s[2].stripe_count == DCP_STRIPE_ALL && s[2].stripe_bytes == 1048576);
    config_free(c);
}

static void overrides_win(void **state) {
    (void)state;
    config *c;
    dcp_error err;
    assert_int_equal(load(MINIMAL, "optimizer.params.lr=0.5", &c, &err), DCP_OK);
    assert_true(c->lr == 0.5);
    config_free(c);
    assert_int_equal(load(MINIMAL, "max_steps=1e3", &c, &err), DCP_OK);
    assert_true(c->max_steps == 1000 && json_is_integer(json_object_get(c->tree, "max_steps")));
    config_free(c);
    assert_int_equal(load(MINIMAL, "data.path=2024", &c, &err), DCP_OK);
    assert_string_equal(c->data_path, "2024");
    config_free(c);
    assert_int_equal(load(MINIMAL, "data.dtype=uint16", &c, &err), DCP_OK);
    config_free(c);
    assert_int_equal(load(MINIMAL, "metrics=null", &c, &err), DCP_OK);
    assert_null(c->metrics);
    config_free(c);
    assert_int_equal(load(MINIMAL, "model.hidden_size=64", &c, &err), DCP_OK);
    assert_int_equal(json_integer_value(json_object_get(c->model, "hidden_size")), 64);
    config_free(c);
}

/* As the file has it, and as a path that is given before it. */
static void overrides_reach_into_the_models_file(void **state) {
    (void)state;
    FILE *file = fopen("model-override.json", "w");
    assert_non_null(file);
    fputs("{\"model_type\": \"gpt2\", \"n_layer\": 12}", file);
    assert_int_equal(fclose(file), 0);
    const char *text = "{\"model\": \"model-override.json\", \"data\": {\"path\": \"x\"}}";
    config *c;
    dcp_error err;
    assert_int_equal(load(text, "model.n_layer=2", &c, &err), DCP_OK);
    unlink("model-override.json");
    assert_int_equal(json_integer_value(json_object_get(c->model, "n_layer")), 2);
    assert_string_equal(json_string_value(json_object_get(c->model, "model_type")), "gpt2");
    assert_true(json_equal(json_object_get(c->tree, "model"), c->model));
    config_free(c);
    assert_int_equal(load(text, "model.n_layer=2", &c, &err), DCP_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "model: model-override.json: cannot read"));
}

static void a_stored_batch_has_its_length(void **state) {
    (void)state;
    const char *text = "{" MODEL ", \"data\": {\"path\": \"x\", \"type\": \"safetensors\"}}";
    config *c;
    dcp_error err;
    assert_int_equal(load(text, NULL, &c, &err), DCP_OK);
    assert_int_equal(c->sequence, 0);
    config_free(c);
    assert_int_equal(load(text, "data.sequence_length=32", &c, &err), DCP_OK);
    assert_int_equal(c->sequence, 32);
    config_free(c);
}

/* What is given on the command line, and what the message must hold. */
static const struct {
    const char *override;
    const char *message;
} wrong[] = {
    {"max_step=3", "max_step: unknown key; did you mean max_steps?"},
    {"lr=3", "lr: unknown key; did you mean optimizer.params.lr?"},
    {"optimiser.params.lr=1", "optimiser: unknown key; did you mean optimizer?"},
    {"checkpoint.evry=1", "checkpoint.evry: unknown key; did you mean checkpoint.every?"},
    {"fsdp.every=1", "fsdp.every: unknown key; did you mean checkpoint.every?"},
    {"learning_rate=1", "learning_rate: unknown key; did you mean optimizer.params.lr?"},
    {"train.batch_size=8", "train: unknown key, and no known key is similar"},
    {"checkpoint.steps=3", "checkpoint.steps: unknown key, and no known key is similar"},
    {"data.seq_len=8", "data.seq_len: unknown key; did you mean data.sequence_length?"},
    {"sched=1", "sched: unknown key, and no known key is similar"},
    {"verbosity=1", "verbosity: unknown key, and no known key is similar"},
    {"max_steps=0", "max_steps: 0 is not an integer from 1 to 2147483647"},
    {"max_steps=2.5", "max_steps: 2.5 is not an integer"},
    {"max_steps=1e10", "max_steps: 10000000000.0 is not an integer from 1 to 2147483647"},
    {"max_steps=ten", "max_steps: \"ten\" is not an integer"},
    {"optimizer.params.betas=[0.9,1]", "optimizer.params.betas: [0.9,1] is not two numbers"},
    {"optimizer.params.lr=-1", "optimizer.params.lr: -1 is not a number from 0"},
    {"optimizer.params.no_decay=[1]", "optimizer.params.no_decay: [1] is not a list of strings"},
    {"optimizer.type=Lion",
     "optimizer.type: \"Lion\" is not one of AdamW|SGD; set optimizer.type=AdamW"},
    {"optimizer.params.momentum=0.9", "params.momentum: a key of SGD, which AdamW does not have"},
    {"optimizer={\"type\":\"SGD\",\"params\":{\"eps\":1e-8}}",
     "optimizer.params.eps: a key of AdamW, which SGD does not have"},
    {"scheduler=cosine", "scheduler: not an object; an object with keys is required"},
    {"scheduler.type=cos", "scheduler.type: \"cos\" is not one of constant|linear|cosine|wsd"},
    {"scheduler.type=OneCycle", "wsd; set one of them, or DeepSpeed's WarmupLR, WarmupDecayLR or"},
    {"data.type=token",
     "data.type: \"token\" is not one of text|tokens|records|speech|idx|safetensors"},
    {"eval_every=3", "eval_every: 3, but there is no data.eval_path"},
    {"frozen=*", "frozen: \"*\" is not a list of strings"},
    {"zero_optimization.stage=4", "zero_optimization.stage: 4 is not an integer"},
    {"fsdp.replicas=0", "fsdp.replicas: 0 is not an integer from 1"},
    {"fsdp.wrap_policy=blocks", "fsdp.wrap_policy: \"blocks\" is not one of transformer|size"},
    {"fsdp.accumulate=whole", "fsdp.accumulate: \"whole\" is not one of sharded|local"},
    {"fsdp.activation_checkpointing=1", "activation_checkpointing: 1 is not true or false"},
    {"fsdp.offload_path=x", "fsdp.offload_path: x, but fsdp.cpu_offload is false"},
    {"checkpoint.engine=mpi", "checkpoint.engine: \"mpi\" is not one of auto|direct|mpio"},
    {"checkpoint.engine=cufile",
     "checkpoint.engine: \"cufile\" is not one of auto|direct|mpio; cufile was removed"},
    {"checkpoint.layout=split", "checkpoint.layout"},
    {"checkpoint.staging_mb=-1", "checkpoint.staging_mb: -1"},
    {"checkpoint.when_busy=no", "checkpoint.when_busy"},
    {"checkpoint.stripe_count=-2", "checkpoint.stripe_count: -2 is not an integer from -1 to 2000"},
    {"checkpoint.stripe_bytes=65537", "checkpoint.stripe_bytes: 65537 is not a multiple of 65536"},
    {"checkpoint.stores=[{\"path\":\"a\",\"stripe_count\":2001}]", "[0].stripe_count is not an"},
    {"checkpoint.stores=[{\"path\":\"a\",\"stripe_bytes\":1}]", "[0].stripe_bytes is not a mult"},
    {"checkpoint.stores={}", "checkpoint.stores: {} is not a list of objects"},
    {"checkpoint.stores=[1]", "checkpoint.stores[0]: not an object"},
    {"checkpoint.stores=[{\"path\":\"a\"},{}]", "checkpoint.stores[1].path: missing"},
    {"checkpoint.stores=[{\"path\":\"\"}]", "checkpoint.stores[0].path is not a non-empty string"},
    {"checkpoint.dir=\"\"", "checkpoint.dir: \"\" is not a non-empty string"},
    {"checkpoint.stores=[{\"path\":\"a\",\"ever\":1}]", "[0].ever: unknown key"},
    {"checkpoint.stores=[{\"path\":\"a\",\"every\":0}]", "[0].every is not an integer from 1"},
    {"checkpoint.stores=[{\"path\":\"a\",\"keep\":-1}]", "[0].keep is not"},
    {"checkpoint.stores=[{\"path\":\"a\",\"redundancy\":\"rs(0)\"}]", "none, partner or rs(1)"},
    {"checkpoint.stores=[{},{},{},{},{},{},{},{}]", "8 stores; at most 7"},
    {"train_batch_size=10", "train_batch_size: 10 is not a multiple of "
                            "train_micro_batch_size_per_gpu 4"},
    {"max_steps=0", "command line: max_steps: 0"},
    {"train_batch_size=10", "command line: train_batch_size: 10"},
    {"model={\"a\":1,\"a\":2}", "command line: model: the value has a key twice"},
    {"model=/nowhere/config.json", "command line: model: /nowhere"},
    {"max_steps", "\"max_steps\" is not of the form key.path=value"},
    {"max_steps.x=1", "max_steps: {\"x\":1} is not an integer"},
    {"model=/nowhere/config.json", "model: /nowhere/config.json: cannot read"},
    {"data.sequence_length=null",
     "data.sequence_length: null is possible only with data.type safetensors"},
    {"checkpoint.resume=autoo", "checkpoint.resume: there is no autoo; did you mean auto?"},
    {"checkpoint.stores=[{\"path\":\"ckpt/.\"}]",
     "command line: checkpoint.stores[0].path: ckpt/. is also checkpoint.dir;"},
    {"checkpoint.stores=[{\"path\":\"a\"},{\"path\":\"./a//\"}]",
     "checkpoint.stores[0].path: a is also checkpoint.stores[1].path;"},
    /* DeepSpeed's */
    {"fp16.enabled=true",
     "command line: fp16.enabled: true; fp16 is not implemented: set fp16.enabled=fa"},
    {"zero_optimization.overlap_comm=yes", "zero_optimization.overlap_comm: "},
    {"zero_optimization.offload_param={\"device\":\"tpu\"}", "device must be none, cpu or nvme"},
    {"zero_optimization.offload_param={\"device\":\"nvme\"}", "device nvme needs a nvme_path"},
    {"zero_optimization.overlap_com=true", "zero_optimization.overlap_com: unknown key; did you"},
    {"zero_optimization.mics_shard_size=4", "mics_shard_size: 4; set fsdp.replicas to the number"},
    {"torch_autocast.enabled=true",
     "torch_autocast.enabled: true; autocast exists only in PyTorch: set"},
    {"bf16.enable=true", "bf16.enable: unknown key; did you mean bf16.enabled?"},
    {"max_steps=auto",
     "max_steps: \"auto\" is not an integer from 1 to 2147483647; this key has no automatic value"},
    {"scheduler.type=OneCycle",
     "scheduler.type: \"OneCycle\" is not one of constant|linear|cosine"},
    {"scheduler.params.cycle_min_lr=1e-5", "schedules of that kind are not implemented"},
    {"scheduler.params.warmup_min_lr=1e-6",
     "warmup_min_lr: 1e-6; a warm-up begins with a learning rate of 0 here"},
    {"optimizer={\"type\":\"Adam\",\"params\":{\"adam_w_mode\":false}}",
     "adam_w_mode: false; AdamW"},
};

static void names_each_mistake(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        config *c;
        dcp_error err;
        assert_int_not_equal(load(MINIMAL, wrong[i].override, &c, &err), DCP_OK);
        if (!strstr(err.message, wrong[i].message) || strstr(err.message, "config-"))
            fail_msg("%s: %s", wrong[i].override, err.message);
    }
}

/* Overrides that mean nothing, or what another key does. */
static void takes_deepspeeds(void **state) {
    (void)state;
    static const char *const taken[] = {
        "fp16={\"enabled\":false,\"loss_scale\":0}",
        "zero_optimization.offload_optimizer={\"device\":\"cpu\",\"pin_memory\":true}",
        "zero_optimization.stage3_max_live_parameters=1e9",
        "activation_checkpointing.partition_activations=true",
        "bf16.immediate_grad_update=true",
        "tensor_parallel.autotp_size=1",
        "elasticity={\"enabled\":false}",
        "steps_per_print=10",
    };
    config *c;
    dcp_error err;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (load(MINIMAL, taken[i], &c, &err) != DCP_OK) fail_msg("%s: %s", taken[i], err.message);
        assert_true(!c->offloads && c->stage == 3);
        config_free(c);
    }
    assert_int_equal(load(MINIMAL, "scheduler.type=warmupdecaylr", &c, &err), DCP_OK);
    assert_true(c->schedule == SCHEDULE_LINEAR && c->warmup_steps == 1000 && c->min_lr_ratio == 0);
    config_free(c);
    assert_int_equal(load(MINIMAL,
                          "zero_optimization.offload_param={\"device\":\"nvme\","
                          "\"nvme_path\":\"/x\"}",
                          &c, &err),
                     DCP_OK);
    assert_true(c->offloads);
    assert_string_equal(c->offload_path, "/x");
    config_free(c);
}

static void refuses_broken_files(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"{" MODEL "}", "data.path: missing"},
        {"{\"data\": {\"path\": \"x\"}}", "model: missing"},
        {"{\"seed\": 1, \"seed\": 2}", ":1:18: duplicate object key"},
        {"{\"seed\": 1", ":1:"},
        {"{\"seed\": 12345678901234567890}", ":1:29: too big integer"},
        {"[1]", "does not contain a JSON object"},
        {"{" MODEL ", \"data\": {\"path\": \"text\"}, \"device\": \"cpu\", "
         "\"fsdp\": {\"cpu_offload\": true}}",
         "set fsdp.offload_path to a folder on that disk"},
        {"{\"model_type\": \"llama\"}", "describes a model, not a training"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        config *c;
        dcp_error err;
        assert_int_not_equal(load(texts[i][0], NULL, &c, &err), DCP_OK);
        if (!strstr(err.message, texts[i][1])) fail_msg("%s: %s", texts[i][0], err.message);
        const char *name = strstr(err.message, "config-"); /* the file, once */
        if (!name || strstr(name + 1, "config-")) fail_msg("%s: %s", texts[i][0], err.message);
    }
}

static void checks_a_given_accumulation(void **state) {
    (void)state;
    config *c;
    dcp_error err;
    assert_int_equal(load(MINIMAL, "gradient_accumulation_steps=2", &c, &err), DCP_OK);
    assert_int_equal(config_check_world(c, 4, &err), DCP_OK);
    assert_int_equal(config_check_world(c, 3, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "4 x accumulation 2 x 3 ranks = 24"));
    config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_contracts_defaults),
        cmocka_unit_test(overrides_win),
        cmocka_unit_test(overrides_reach_into_the_models_file),
        cmocka_unit_test(a_stored_batch_has_its_length),
        cmocka_unit_test(names_each_mistake),
        cmocka_unit_test(takes_deepspeeds),
        cmocka_unit_test(refuses_broken_files),
        cmocka_unit_test(checks_a_given_accumulation),
        cmocka_unit_test(stores_come_before_the_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
