/* Saves and loads of memory with strides beside dense memory: the same number of bytes from one
 * process, in turn, the best of several rounds, as seconds and as ratios to dense.
 *   bench_strided DIR [MIB [ROUNDS]]     DIR: a folder on the disk to measure; 256 MiB, 5 rounds
 * Target on an idle machine: at most 1.1 where 4 KiB and more are contiguous. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "dcp/dcp.h"

#define PAD 64 /* bytes after a row */
#define PAGE 4096
#define HUGE_PAGE (2u << 20)

typedef struct memory {
    const char *name;
    uint64_t row; /* bytes of a row of the matrix */
    int is_padded, is_turned;
    double save_s, load_s; /* the best */
    dcp_state *state;
    unsigned char *all, *data;
} memory;

static memory memories[] = {
    {.name = "dense", .row = 4096},
    {.name = "dense, not on a page", .row = 4096},
    {.name = "rows of 64 KiB, padded", .row = 65536, .is_padded = 1},
    {.name = "rows of 4 KiB, padded", .row = 4096, .is_padded = 1},
    {.name = "rows of 512 bytes, padded", .row = 512, .is_padded = 1},
    {.name = "transposed, elements of 8 bytes", .row = 8 * 4000, .is_turned = 1},
};
enum { MEMORIES = sizeof memories / sizeof *memories };

static void check(int status, const dcp_error *err) {
    if (!status) return;
    fprintf(stderr, "bench_strided: %s\n", err->message);
    exit(1);
}

static void make(memory *m, uint64_t bytes) {
    const uint64_t rows = bytes / m->row, stride = m->row + (m->is_padded ? PAD : 0);
    const dcp_tensor t = {"/m/w", DCP_F64, 2, {rows, m->row / 8}};
    const int64_t by_rows[] = {(int64_t)stride, 8}, by_columns[] = {8, (int64_t)rows * 8};
    dcp_error err;
    m->all = aligned_alloc(HUGE_PAGE, (rows * stride / HUGE_PAGE + 2) * HUGE_PAGE);
    if (!m->all) abort();
    madvise(m->all, rows * stride, MADV_HUGEPAGE); /* dense memory is moved fastest then */
    memset(m->all, 1, rows * stride + PAGE);
    m->data = m->all + (m == &memories[1] ? 8 : 0);
    m->save_s = m->load_s = 1e9;
    check(dcp_state_create(&m->state, &err), &err);
    check(dcp_state_add_strided(m->state, &t, NULL, m->data, m->is_turned ? by_columns : by_rows,
                                &err),
          &err);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep_best(double *best, double seconds) {
    if (seconds < *best) *best = seconds;
}

static void measure(memory *m, dcp_comm *comm, dcp_store *store, const char *dir, uint64_t step) {
    dcp_checkpoint *ckpt;
    dcp_error err;
    double start = now();
    check(dcp_save(store, step, m->state, NULL, NULL, NULL, &err), &err);
    keep_best(&m->save_s, now() - start);
    check(dcp_checkpoint_open(comm, dir, &ckpt, &err), &err);
    start = now();
    check(dcp_load(ckpt, m->state, NULL, &err), &err);
    keep_best(&m->load_s, now() - start);
    dcp_checkpoint_close(ckpt);
}

static void print_table(uint64_t bytes) {
    const memory *dense = &memories[0];
    printf("%-34s %8s %6s %8s %6s\n", "", "save s", "ratio", "load s", "ratio");
    for (const memory *m = memories; m < memories + MEMORIES; m++)
        printf("%-34s %8.3f %6.2f %8.3f %6.2f\n", m->name, m->save_s, m->save_s / dense->save_s,
               m->load_s, m->load_s / dense->load_s);
    printf("dense: saved at %.2f GB/s, loaded at %.2f GB/s\n", 1e-9 * (double)bytes / dense->save_s,
           1e-9 * (double)bytes / dense->load_s);
}

int main(int argc, char **argv) {
    dcp_error err;
    dcp_comm *comm;
    dcp_store *store;
    dcp_store_options options = {.size = sizeof options, .keep = 1};
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: bench_strided DIR [MIB [ROUNDS]]\n");
        return 2;
    }
    char *dir = malloc(strlen(argv[1]) + sizeof "/strided-XXXXXX");
    if (!dir) abort();
    sprintf(dir, "%s/strided-XXXXXX", argv[1]);
    if (!mkdtemp(dir)) {
        fprintf(stderr, "bench_strided: %s: %s\n", dir, strerror(errno));
        return 1;
    }
    const uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 256) << 20;
    const uint64_t rounds = argc > 3 ? strtoull(argv[3], NULL, 10) : 5;
    check(dcp_comm_self(&comm, &err), &err);
    check(dcp_store_open(comm, dir, &options, &store, &err), &err);
    for (memory *m = memories; m < memories + MEMORIES; m++) make(m, bytes);
    for (uint64_t i = 0; i < rounds * MEMORIES; i++)
        measure(&memories[i % MEMORIES], comm, store, dir, i);
    print_table(bytes);
    dcp_store_close(store);
    dcp_comm_destroy(comm);
    for (memory *m = memories; m < memories + MEMORIES; m++) {
        dcp_state_destroy(m->state);
        free(m->all);
    }
    free(dir);
    return 0;
}
