/* dcp_verify also reads the redundancy files beside the shards: a flip in one is damage, which
 * names the file, and its progress counts them. */
#include <stdio.h>

#include "redundancy/encode.h"
#include "support/scratch.h"

typedef struct heard {
    int lines;
    char last[4300];
    uint64_t done, total;
} heard;

static void on_damage(void *ctx, const char *line) {
    heard *h = ctx;
    h->lines++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    heard *h = ctx;
    h->done = done;
    h->total = total;
}

static int verify(const char *folder, heard *h) {
    const dcp_verify_options options = {.size = sizeof options,
                                        .ctx = h,
                                        .on_damage = on_damage,
                                        .on_progress = on_progress,
                                        .progress_ctx = h};
    *h = (heard){0};
    return dcp_verify(folder, &options, NULL);
}

static void check_flips(const char *folder, const char *name) {
    char path[PATH_MAX];
    heard h;
    unsigned char byte;
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    const off_t bytes = lseek(fd, 0, SEEK_END);
    const off_t places[] = {0, 4095, 4096, 8191, 8192, bytes / 2, bytes - 1};
    CHECK(verify(folder, &h) == DCP_OK && h.lines == 0);
    CHECK(h.total > (uint64_t)bytes && h.done > (uint64_t)bytes);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        CHECK(pread(fd, &byte, 1, places[i]) == 1);
        byte ^= 1;
        CHECK(pwrite(fd, &byte, 1, places[i]) == 1);
        CHECK(verify(folder, &h) == DCP_ERR_CORRUPT && h.lines == 1 && strstr(h.last, name));
        byte ^= 1;
        CHECK(pwrite(fd, &byte, 1, places[i]) == 1);
    }
    close(fd);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    char folder[PATH_MAX];
    redundancy_spec spec;
    redundancy_groups *groups;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    scratch_save(&s, s.comm, "ckpt", &g, ROWS, DCP_LAYOUT_SHARDED);
    snprintf(folder, sizeof folder, "%s/ckpt/step-00000005", s.root);
    SUCCEEDS(redundancy_parse("rs(1)", &spec, err));
    SUCCEEDS(redundancy_groups_collect(s.comm, &spec, (uint64_t)s.rank, &groups, err));
    SUCCEEDS(redundancy_encode(s.comm, groups, folder, 5, NULL, err));
    redundancy_groups_free(groups);
    if (s.rank == 0) check_flips(folder, "parity-00001-of-00002.bin");
    given_free(&g);
    return scratch_end(&s);
}
