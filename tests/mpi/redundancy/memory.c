/* Encoding and rebuilding add some 16 MiB to a rank's resident memory, however long the files
 * are. */
#include "support/private_files.h"
#include "support/resident.h"

#define LIMIT_KIB (24 << 10)
#define SHARD_BYTES ((off_t)96 << 20)

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
    SUCCEEDS(redundancy_encode(s.comm, p.groups, folder, PRIVATE_STEP, NULL, err));
    check_growth("encode", before, LIMIT_KIB);
    private_lose(&p, 1);
    before = reset_peak();
    redundancy_survey *survey = private_survey(&p, 1);
    private_rebuild(&p, survey);
    check_growth("rebuild", before, LIMIT_KIB);
    redundancy_survey_close(survey);
    private_end(&p);
    return scratch_end(&s);
}
