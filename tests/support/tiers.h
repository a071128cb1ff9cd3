/* Lists of stores for tests, and what they log: memory and disk of each rank's own node, and a
 * shared store, all below the scratch folder. */
#ifndef TESTS_MPI_TIERS_H
#define TESTS_MPI_TIERS_H

#include <pthread.h>

#include "dcp/tiers.h"
#include "reader/checkpoint.h"
#include "support/private.h"

typedef struct tiers_log_text {
    char text[16384];
    pthread_mutex_t lock; /* threads fill stores */
} tiers_log_text;

static inline void keep_line(void *ctx, dcp_log_level level, const char *line) {
    tiers_log_text *log = ctx;
    (void)level;
    pthread_mutex_lock(&log->lock);
    size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof log->text - used, "%s\n", line);
    pthread_mutex_unlock(&log->lock);
}

typedef struct tiers_under_test {
    char memory[PATH_MAX], disk[PATH_MAX], shared[PATH_MAX];
    dcp_tier list[3];
    dcp_tiers_options options;
    tiers_log_text log;
} tiers_under_test;

/* The stores get every 1, 2 and 4 steps. redundancy: of the memory, as if each rank were on a host
 * of its own. */
static inline void tiers_make(tiers_under_test *t, const scratch *s, const char *redundancy) {
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->log.lock, NULL);
    snprintf(t->memory, sizeof t->memory, "%s/memory-{rank}", s->root);
    snprintf(t->disk, sizeof t->disk, "%s/disk-{host}-{rank}", s->root);
    snprintf(t->shared, sizeof t->shared, "%s/shared", s->root);
    t->list[0] = (dcp_tier){.size = sizeof(dcp_tier),
                            .path = t->memory,
                            .every = 1,
                            .keep = 2,
                            .is_private = 1,
                            .redundancy = redundancy,
                            .domain = "{rank}"};
    t->list[1] = (dcp_tier){
        .size = sizeof(dcp_tier), .path = t->disk, .every = 2, .keep = 2, .is_private = 1};
    t->list[2] = (dcp_tier){.size = sizeof(dcp_tier), .path = t->shared, .every = 4, .keep = 2};
    t->options = (dcp_tiers_options){
        .size = sizeof(dcp_tiers_options), .tool = "test", .log = keep_line, .log_ctx = &t->log};
    t->options.loads_only = s->size % 2;
}

static inline dcp_tiers *tiers_open(tiers_under_test *t, const scratch *s) {
    dcp_tiers *tiers = NULL;
    SUCCEEDS(dcp_tiers_open(s->comm, t->list, 3, &t->options, &tiers, err));
    return tiers;
}

/* This rank's directory of store i. */
static inline void tiers_dir(const tiers_under_test *t, const scratch *s, int i, char *dir) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    (void)t;
    if (i == 0) snprintf(dir, PATH_MAX, "%s/memory-%d", s->root, s->rank);
    if (i == 1) snprintf(dir, PATH_MAX, "%s/disk-%s-%d", s->root, host, s->rank);
    if (i == 2) snprintf(dir, PATH_MAX, "%s/shared", s->root);
}

/* Checks the steps of store i on this rank's node, written as "c3 c4 a5". */
static inline void tiers_check_steps(const tiers_under_test *t, const scratch *s, int i,
                                     const char *expected) {
    char dir[PATH_MAX], found[256] = "";
    dcp_step *steps;
    size_t n;
    MPI_Barrier(MPI_COMM_WORLD);
    tiers_dir(t, s, i, dir);
    CHECK(dcp_steps_list(dir, &steps, &n, NULL) == DCP_OK);
    for (size_t k = 0; k < n; k++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%c%llu", k ? " " : "",
                 "cpa"[steps[k].kind], (unsigned long long)steps[k].step);
    free(steps);
    if (strcmp(found, expected)) fprintf(stderr, "store %d: %s, not %s\n", i, found, expected);
    CHECK(!strcmp(found, expected));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Flips a byte in the middle of the rank's shard of the step in memory. */
static inline void tiers_flip(const scratch *s, const tiers_under_test *t, int rank,
                              const char *step) {
    char dir[PATH_MAX], path[2 * PATH_MAX];
    unsigned char byte;
    MPI_Barrier(MPI_COMM_WORLD);
    tiers_dir(t, s, 0, dir);
    snprintf(path, sizeof path, "%s/%s/shard-%05d-of-%05d.h5", dir, step, rank, s->size);
    if (rank == s->rank) {
        int fd = open(path, O_RDWR);
        off_t at = lseek(fd, 0, SEEK_END) / 2;
        CHECK(pread(fd, &byte, 1, at) == 1);
        byte ^= 1;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        close(fd);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Returns 1 on rank 0 if the log contains the text. */
static inline int tiers_logged(tiers_under_test *t, const scratch *s, const char *text) {
    return s->rank != 0 || strstr(t->log.text, text);
}

/* A load for dcp_tiers_load: rows, compared with the state of `salt` = step. */
typedef struct tiers_loading {
    const scratch *s;
    int loads;
} tiers_loading;

static inline int tiers_load_rows(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    tiers_loading *l = ctx;
    given g;
    held h;
    l->loads++;
    CHECK(!ckpt->scattered ||
          ckpt->rows == (l->s->size % 2 ? READER_ROWS_AT_HOMES : READER_ROWS_COPIED));
    given_make(&g, dcp_checkpoint_step(ckpt));
    held_make(&h, &g, COLUMNS, l->s->rank, l->s->size, 0);
    int status = dcp_load(ckpt, h.state, NULL, err);
    CHECK(status || held_is_given(&h, &g));
    held_free(&h);
    given_free(&g);
    return status;
}

/* Loads the newest step, which must be this one. */
static inline void tiers_expect(dcp_tiers *tiers, const scratch *s, uint64_t step) {
    tiers_loading l = {s, 0};
    uint64_t loaded = 0;
    SUCCEEDS(dcp_tiers_load(tiers, tiers_load_rows, &l, &loaded, err));
    if (loaded != step) fprintf(stderr, "step %llu is loaded\n", (unsigned long long)loaded);
    CHECK(loaded == step);
}

#endif
