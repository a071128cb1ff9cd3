#include "setup/preview.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "fsdp/fsdp_plan.h"
#include "fsdp/shard_layout.h"
#include "optim/optim.h"
#include "setup/device.h"
#include "setup/disk_space.h"
#include "setup/model_setup.h"
#include "setup/rank_memory.h"

/* Makes the plan of rank 0, the rank that holds the most. All `ranks` ranks are on one host; with
 * is_on_gpu, each has a GPU of its own. Ranks share gathered units only in the host's memory. *out
 * refers to *layout, which the caller destroys. */
static int setup_planned(const config *c, const model *m, int ranks, bool is_on_gpu, fsdp_plan *out,
                         fsdp_layout **layout, dcp_error *err) {
    *layout = NULL;
    *out = (fsdp_plan){.micro_batches = config_micro_batches(c),
                       .slot_bytes = optim_element_bytes(optim_type_find(c->optimizer)),
                       .offloads = c->offloads,
                       .is_on_host = c->offloads && (is_on_gpu || !c->offload_path),
                       .is_shared = c->shares_memory && !is_on_gpu};
    if (out->is_on_host)
        out->is_shared = false; /* parameters on the host imply units on a device */
    int status = fsdp_strategy_of(c, ranks, &out->strategy, err);
    if (status == DCP_OK)
        status = fsdp_layout_of_model(m, c->frozen, &out->strategy, 0, ranks, layout, err);
    out->layout = *layout;
    return status;
}

/* The sizes in which GPUs are sold, in GB. At least size * 10^9 bytes are available on such a
 * GPU. */
static const uint64_t sizes[] = {8, 16, 24, 40, 80};
static const uint64_t bytes_of_gb = 1000000000;

/* Memory that no plan includes: CUDA's context of 300 to 500 MiB, code that CUDA loads later
 * (LOADED_LATER), and the workspace of matrix products (CUDA_WORKSPACE). */
static const uint64_t cuda_bytes = (uint64_t)800 << 20;
/* NCCL's buffers, for each rank that a rank sends to directly. Measured on a host with 8 H100s,
 * where they are largest (3.3 GB for the 7 other GPUs: github.com/NVIDIA/nccl/issues/1685). */
static const uint64_t peer_bytes = (uint64_t)448 << 20;
enum { MOST_PEERS = 7 }; /* the other GPUs of a host; ranks on other hosts use the same buffers */

/* The ways to run that are compared: the configuration, with these options turned on. */
static const struct {
    bool checkpointing, offloads;
    const char *name;
} ways[] = {{false, false, "as configured"},
            {true, false, "with activation checkpointing"},
            {true, true, "with activation checkpointing and cpu_offload"}};
enum { WAYS = sizeof ways / sizeof *ways };

static uint64_t peers_of(int ranks) {
    return ranks > MOST_PEERS ? MOST_PEERS : (uint64_t)ranks - 1;
}

/* Returns the bytes that CUDA needs, plus the bytes that NCCL needs for all of its
 * communicators. */
static uint64_t library_bytes(const fsdp_layout *layout) {
    uint64_t peers = peers_of(layout->world);
    if (layout->shards > 1 && layout->shards < layout->world)
        peers += peers_of(layout->shards) + peers_of(layout->world / layout->shards);
    return cuda_bytes + peers * peer_bytes;
}

/* Predicts the memory of a rank on its GPU. *libraries: the part of *bytes that CUDA and NCCL
 * need. */
static int measure(const config *c, const model *m, int ranks, uint64_t sequence, uint64_t *bytes,
                   uint64_t *libraries, dcp_error *err) {
    fsdp_plan plan;
    fsdp_layout *layout = NULL;
    setup_memory needs;
    int status = setup_planned(c, m, ranks, true, &plan, &layout, err);
    if (status == DCP_OK) status = setup_memory_predict(c, m, &plan, sequence, 0, &needs, err);
    if (status == DCP_OK) {
        *libraries = library_bytes(layout);
        *bytes = setup_memory_on_device(&needs, layout) + *libraries;
    }
    fsdp_layout_destroy(layout);
    return status;
}

static int measure_all(const config *c, model *m, int ranks, uint64_t sequence, uint64_t *bytes,
                       uint64_t *libraries, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < WAYS && status == DCP_OK; i++) {
        config with = *c;
        with.checkpointing |= ways[i].checkpointing;
        with.offloads |= ways[i].offloads;
        model_set_checkpointing(m, with.checkpointing);
        status = measure(&with, m, ranks, sequence, &bytes[i], libraries, err);
    }
    model_set_checkpointing(m, c->checkpointing);
    return status;
}

static void print_fit(int ranks, uint64_t gb, const uint64_t *bytes) {
    size_t way = 0;
    while (way < WAYS && bytes[way] > gb * bytes_of_gb) way++;
    printf("%d %s of %" PRIu64 " GB: %s%s%s\n", ranks, ranks == 1 ? "GPU" : "GPUs", gb,
           way < WAYS ? "fits" : "does not fit", way > 0 && way < WAYS ? " " : "",
           way > 0 && way < WAYS ? ways[way].name : "");
}

/* Prints how much memory a rank needs on a GPU of its own, as configured and with options that
 * reduce it. Then prints for each size of GPU the first of these ways that fits. m: the model of c.
 * sequence: tokens per sample. */
static int setup_gpu_fit_print(const config *c, model *m, int ranks, uint64_t sequence,
                               dcp_error *err) {
    uint64_t bytes[WAYS], libraries;
    const int status = measure_all(c, m, ranks, sequence, bytes, &libraries, err);
    if (status != DCP_OK) return status;
    printf("\nmemory of a rank on a GPU of its own, MiB\n");
    printf("  %-46s %12.2f\n", "CUDA and NCCL, included in each of these", setup_mib(libraries));
    for (size_t i = 0; i < WAYS; i++)
        if (i == 0 || bytes[i] != bytes[i - 1])
            printf("  %-46s %12.2f\n", ways[i].name, setup_mib(bytes[i]));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) print_fit(ranks, sizes[i], bytes);
    return DCP_OK;
}

/* Writes the common prefix of the names of a unit's parameters, such as "model.layers.0". */
static void name_unit(const fsdp_unit *unit, size_t number, char *out, size_t size) {
    snprintf(out, size, "%s", number ? unit->params[0].info.name : "root");
    if (!number) return;
    for (size_t i = 0; i < unit->n; i++) {
        size_t same = 0;
        while (out[same] && out[same] == unit->params[i].info.name[same]) same++;
        out[same] = '\0';
    }
    char *dot = strrchr(out, '.');
    if (dot) *dot = '\0';
}

static uint64_t unit_params(const fsdp_unit *unit) {
    uint64_t sum = 0;
    for (size_t i = 0; i < unit->n; i++) sum += model_param_elems(&unit->params[i].info);
    return sum;
}

/* Returns how often one step gathers the unit. */
static uint64_t gathers_of(const fsdp_plan *plan, size_t unit) {
    const fsdp_micro_batches micro_batches = fsdp_plan_micro_batches(plan);
    uint64_t times = 0;
    if (plan->layout->shards == 1) return 0;
    if (unit == 0) return 1;
    for (uint64_t micro = 0; micro < fsdp_micro_batches_steps(&micro_batches); micro++)
        for (size_t i = 0; i < fsdp_plan_gathers(plan, micro); i++)
            times += fsdp_plan_gather(plan, i) == unit;
    return times;
}

static void print_units(const fsdp_plan *plan) {
    const fsdp_layout *layout = plan->layout;
    const uint64_t gathered_size = plan->strategy.bf16 ? 2 : sizeof(float);
    printf("\n%5s  %-28s %12s %10s %12s %14s %8s\n", "unit", "", "parameters", "MiB",
           "MiB per rank", "MiB per gather", "gathers");
    for (size_t u = 0; u < layout->n; u++) {
        const fsdp_unit *unit = &layout->units[u];
        char name[128];
        name_unit(unit, u, name, sizeof name);
        printf("%5zu  %-28s %12" PRIu64 " %10.2f %12.2f %14.2f %8" PRIu64 "\n", u, name,
               unit_params(unit), setup_mib(sizeof(float) * unit->whole_elems),
               setup_mib(sizeof(float) * (uint64_t)unit->counts[layout->shard]),
               setup_mib(gathered_size * fsdp_gather_sends(layout, u)), gathers_of(plan, u));
    }
}

static void print_memory(const setup_memory *m, bool is_on_host, int ranks, int groups) {
    const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {{"parameters", m->params},
                {"gradients", m->grads},
                {"moments", m->slots},
                {"offloaded, at work", m->paged},
                {"gathered units", m->units},
                {"activations", m->activations},
                {"partial sums", m->partial},
                {"samples", m->samples},
                {"buffers of a save", m->buffers},
                {"program", m->program},
                {"together", setup_memory_sum(m)},
                {"shared by a group", m->shared},
                {"shared, never read", m->unread},
                {"staging, at most", m->staging},
                {is_on_host ? "offloaded, to the host" : "offloaded, on disk", m->offloaded}};
    const uint64_t own = setup_memory_sum(m) + m->staging + (is_on_host ? m->offloaded : 0);
    const uint64_t need =
        (own + m->unread) * (uint64_t)ranks - m->shared * (uint64_t)(ranks - groups);
    const setup_machine_memory has = setup_machine_memory_find();
    printf("\nmemory of a rank, MiB\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("  %-20s %12.2f\n", rows[i].name, setup_mib(rows[i].bytes));
    printf("%d %s on this machine: %.1f of %.1f MiB%s: %s\n", ranks, ranks == 1 ? "rank" : "ranks",
           setup_mib(need), setup_mib(has.all),
           has.is_of_group ? ", the limit of the control group" : "",
           need <= has.all ? "fits" : "does not fit");
    if (has.of_process < own + m->unread)
        printf("a rank: %.1f of %.1f MiB that a process may have (ulimit -v): does not fit\n",
               setup_mib(own + m->unread), setup_mib(has.of_process));
}

static void print_traffic(const fsdp_plan *plan) {
    const fsdp_traffic sent = fsdp_plan_traffic(plan);
    printf("\nsent by a rank in a step, MiB\n  %-20s %12.2f\n  %-20s %12.2f\n  %-20s %12.2f\n",
           "gathers", setup_mib(sent.gathers), "reductions", setup_mib(sent.reductions), "together",
           setup_mib(sent.gathers + sent.reductions));
    if (plan->strategy.replicas > 1)
        printf("  %-20s %12.2f\n", "to other groups", setup_mib(sent.across));
}

static void print_head(const config *c, const fsdp_plan *plan, int ranks) {
    const fsdp_micro_batches micro_batches = fsdp_plan_micro_batches(plan);
    printf("%" PRIu64 " parameters, %" PRIu64
           " of them trained, in %zu units on %d %s in %d %s; %" PRIu64 " micro-batches of %" PRIu64
           " per step, at most %" PRIu64 " per rank\n",
           plan->layout->total_params, plan->layout->trained_params, plan->layout->n, ranks,
           ranks == 1 ? "rank" : "ranks", plan->strategy.replicas,
           plan->strategy.replicas == 1 ? "group that holds the state"
                                        : "groups, each of which holds the state",
           plan->micro_batches, c->micro, fsdp_micro_batches_steps(&micro_batches));
}

/* Prints the number of a talker's parameters without its code predictor's parameters. Publications
 * often give this number. */
static void print_talker(const fsdp_layout *layout) {
    static const char predictor[] = "talker.code_predictor.";
    uint64_t others = 0;
    for (size_t i = 0; i < layout->n_params; i++)
        if (strncmp(layout->params[i].info.name, predictor, strlen(predictor)) != 0)
            others += model_param_elems(&layout->params[i].info);
    printf("%" PRIu64 " parameters without the code predictor\n", others);
}

static int print_model(const config *c, model *m, int ranks, dcp_error *err) {
    fsdp_plan plan;
    fsdp_layout *layout = NULL;
    uint64_t sequence;
    setup_memory needs;
    int status = setup_sequence(c, m, &sequence, err);
    if (status == DCP_OK) status = setup_planned(c, m, ranks, false, &plan, &layout, err);
    if (status == DCP_OK) status = setup_memory_predict(c, m, &plan, sequence, 0, &needs, err);
    if (status == DCP_OK) {
        setup_idle_warn_of_ranks(c, 0, ranks);
        print_head(c, &plan, ranks);
        if (model_speaks(m)) print_talker(layout);
        print_units(&plan);
        print_memory(&needs, plan.is_on_host, ranks, plan.strategy.replicas);
        status = setup_gpu_fit_print(c, m, ranks, sequence, err);
    }
    if (status == DCP_OK) {
        print_traffic(&plan);
        setup_space_print(c, layout, 1);
    }
    fsdp_layout_destroy(layout);
    return status;
}

int setup_preview_print(const config *c, int ranks, dcp_error *err) {
    model *m;
    int status = config_check_world(c, ranks, err);
    if (status == DCP_OK) status = setup_model(c, &m, err);
    if (status != DCP_OK) return status;
    status = print_model(c, m, ranks, err);
    model_destroy(m);
    return status;
}
