/* Encoding and rebuilding add some 16 MiB to a rank's resident memory, however long the files. */
#include "private_files.h"

#define LIMIT_KIB (24 << 10)
#define SHARD_BYTES ((off_t)96 << 20)

#if defined(__SANITIZE_ADDRESS__)
#define HAS_SHADOW 1
#else
#define HAS_SHADOW 0
#endif

static long status_kib(const char *field) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0) kib = atol(line + strlen(field));
    fclose(file);
    CHECK(kib >= 0);
    return kib;
}

static long reset_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    CHECK(file && fputs("5", file) >= 0 && fclose(file) == 0);
    return status_kib("VmRSS:");
}

static void check_growth(const char *what, long before) {
    long growth = status_kib("VmHWM:") - before;
    if (growth > LIMIT_KIB) fprintf(stderr, "%s: %ld KiB more\n", what, growth);
    CHECK(growth <= LIMIT_KIB);
}

int main(int argc, char **argv) {
    static const size_t lengths[8] = {0};
    if (HAS_SHADOW) return 77;
    scratch s;
    private_files p;
    char folder[PATH_MAX], path[PATH_MAX];
    scratch_begin(&s, &argc, &argv);
    private_save(&p, &s, s.comm, s.size, 1, "rs(1)", lengths);
    private_folder(&p, s.rank, folder);
    private_path(&p, s.rank, "shard", path);
    CHECK(truncate(path, SHARD_BYTES - s.rank) == 0);
    long before = reset_peak();
    SUCCEEDS(redundancy_encode(s.comm, p.groups, folder, PRIVATE_STEP, err));
    check_growth("encode", before);
    private_lose(&p, 1);
    before = reset_peak();
    redundancy_survey *survey = private_survey(&p, 1);
    private_rebuild(&p, survey);
    check_growth("rebuild", before);
    redundancy_survey_close(survey);
    private_end(&p);
    return scratch_end(&s);
}
