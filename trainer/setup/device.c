#include "setup/device.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "config/config.h"
#include "programs/fail.h"
#include "programs/program.h"
#include "random/random.h"
#include "ranks/log.h"

enum { LEAST_SIDE = 512, MOST_SIDE = 8192, TIMINGS = 5 }; /* for the products that are measured */
enum { PIECE_ELEMS = 1 << 12 };

static int fail_to_open(const config *c, int status, dcp_error *err) {
    switch (status) {
    case KERNELS_UNKNOWN:
        return core_fail(
            err, DCP_ERR_UNSUPPORTED,
            "device: %s: this build does not support it; build with -DDCP_CUDA=ON, or set "
            "device=cpu",
            c->device);
    case KERNELS_NO_DEVICE:
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "device: %s: this machine has no working GPU%s%s; set device=cpu",
                         c->device, kernels_why() ? ": " : "", kernels_why() ? kernels_why() : "");
    default:
        return core_fail_memory(err, 0);
    }
}

int setup_device_memory(const kernels *k, dcp_device **out, dcp_error *err) {
    void *stream;
    const int number = k->place(k, &stream);
    *out = NULL;
    if (number == KERNELS_HOST) return DCP_OK;
    return dcp_device_cuda_create(number, stream, out, err);
}

/* Checks whether the device supports the configured offloading. An offload file is mapped into the
 * host's memory, which a GPU cannot use. */
static int check_memory(const config *c, const kernels *k, dcp_error *err) {
    const int on_host = kernels_on_host(k);
    if (on_host && c->offloads && !c->offload_path)
        return core_fail(err, DCP_ERR_ARG, "%s", config_no_offload);
    if (on_host || !c->offload_path) return DCP_OK;
    return core_fail(
        err, DCP_ERR_UNSUPPORTED,
        "fsdp.offload_path: not possible with device %s, which cannot access files; leave it out: "
        "fsdp.cpu_offload alone keeps parameters and moments in the host's memory",
        k->name);
}

int setup_device_open(const config *c, unsigned number, kernels **out, dcp_error *err) {
    const bool is_auto = strcmp(c->device, "auto") == 0;
    int status = kernels_open_on(is_auto ? "cuda" : c->device, number, out);
    if (is_auto && (status == KERNELS_UNKNOWN || status == KERNELS_NO_DEVICE))
        status = kernels_open("cpu", out);
    if (status != KERNELS_OK) return fail_to_open(c, status, err);
    (*out)->allow_tf32(*out, c->tf32);
    const int failed = check_memory(c, *out, err);
    if (failed) {
        kernels_close(*out);
        *out = NULL;
    }
    return failed;
}

/* Computes one product of two square matrices of elements of `type`. */
static void multiply(kernels *k, kernels_type type, float *memory, size_t side) {
    const float *a = memory + side * side, *b = a + side * side;
    if (type == KERNELS_BF16)
        k->matmul_bf16(k, memory, (const uint16_t *)a, (const uint16_t *)b, side, side, side, 0);
    else
        k->matmul(k, memory, a, b, side, side, side, 0);
    k->sync(k);
}

/* Returns the floating-point operations per second of this rank's products, while all ranks compute
 * products. */
static double measure_rate(kernels *k, kernels_type type, float *memory, size_t side,
                           MPI_Comm comm) {
    const double at_least_s = 0.02, flop = 2.0 * (double)(side * side) * (double)side;
    MPI_Barrier(comm);
    const double start = MPI_Wtime();
    int products = 0;
    double passed;
    do {
        multiply(k, type, memory, side);
        products++;
        passed = MPI_Wtime() - start;
    } while (passed < at_least_s);
    return flop * products / passed;
}

/* Fills memory with normally distributed numbers of `type`: PIECE_ELEMS numbers, repeated. Zeros
 * are unsuitable: products of zeros need less power, and therefore less time. */
static void fill_operands(kernels *k, kernels_type type, char *memory, size_t bytes) {
    float wide[PIECE_ELEMS];
    uint16_t narrow[PIECE_ELEMS];
    random_normal(wide, 0, random_stream("operands"), 0, PIECE_ELEMS, 1);
    dcp_convert(DCP_F32, wide, DCP_BF16, narrow, PIECE_ELEMS);
    const void *piece = type == KERNELS_BF16 ? (const void *)narrow : wide;
    const size_t most = type == KERNELS_BF16 ? sizeof narrow : sizeof wide;
    for (size_t at = 0; at < bytes; at += most)
        k->upload(k, memory + at, piece, bytes - at < most ? bytes - at : most);
}

static float *take_operands(kernels *k, kernels_type type, size_t side) {
    const size_t bytes = 3 * side * side * sizeof(float);
    float *memory = k->alloc(k, bytes);
    if (memory) fill_operands(k, type, (char *)memory, bytes);
    return memory;
}

/* The size of the products to measure, large enough to keep a GPU busy. */
static size_t choose_side(kernels *k, kernels_type type) {
    const double enough_s = 2e-4;
    for (size_t side = LEAST_SIDE; side < MOST_SIDE; side *= 2) {
        float *memory = take_operands(k, type, side);
        if (!memory) return LEAST_SIDE;
        multiply(k, type, memory, side); /* not timed: the first product may compile kernels */
        const double start = MPI_Wtime();
        multiply(k, type, memory, side);
        const double took = MPI_Wtime() - start;
        k->free(k, memory);
        if (took >= enough_s) return side;
    }
    return MOST_SIDE;
}

double setup_device_peak(kernels *k, kernels_type type, MPI_Comm comm) {
    const size_t side = choose_side(k, type);
    float *memory = take_operands(k, type, side);
    int failed = !memory;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm);
    double rate = 0;
    if (!failed) multiply(k, type, memory, side);
    for (int i = 0; i < TIMINGS && !failed; i++) {
        double now = measure_rate(k, type, memory, side, comm);
        MPI_Allreduce(MPI_IN_PLACE, &now, 1, MPI_DOUBLE, MPI_SUM, comm);
        if (now > rate) rate = now; /* other work can only slow products down */
    }
    k->free(k, memory);
    return rate;
}

void setup_idle_warn_of_ranks(const config *c, int rank, int world) {
    const uint64_t micro_batches = config_micro_batches(c);
    if ((uint64_t)world > micro_batches)
        ranks_warn(rank,
                   "%" PRIu64 " of %d ranks have nothing to compute: train_batch_size %" PRIu64
                   " divided by train_micro_batch_size_per_gpu %" PRIu64 " makes %" PRIu64
                   " micro-batches per step; a smaller micro-batch or a larger batch makes more",
                   (uint64_t)world - micro_batches, world, c->batch, c->micro, micro_batches);
}

void setup_idle_report_cores(const kernels *k, const config *c, MPI_Comm comm) {
    MPI_Comm here;
    int rank, world, ranks_here;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &ranks_here);
    MPI_Comm_free(&here);
    const int n = program_cores();
    if (n > ranks_here && (uint64_t)world < config_micro_batches(c) && kernels_on_host(k))
        ranks_info(rank,
                   "%d of %d cores here are idle, because each rank computes on one: more ranks "
                   "would use them (dcp-run -n), with the same bits",
                   n - ranks_here, n);
}
