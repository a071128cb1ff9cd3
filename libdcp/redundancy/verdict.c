/* What a survey says: whether every stripe has enough strips left. */
#include <stdio.h>
#include <string.h>

#include "core/fail.h"
#include "redundancy/survey.h"

static int is_lost(const redundancy_survey *s, int file) { return s->files[file].rank < 0; }

/* A number after the others, or "..." where the text is full. */
static void append_number(char *text, size_t size, int number) {
    size_t length = strlen(text);
    if (length + 16 < size)
        snprintf(text + length, size - length, "%s%d", length ? ", " : "", number);
    else if (length + 4 < size && text[length - 1] != '.')
        strcat(text, "...");
}

static int can_rebuild(const redundancy_survey *s, const code_group *g, const int *numbers) {
    code_strip rows[REDUNDANCY_MAX_MEMBERS];
    for (int i = 0; i < g->members; i++) {
        int left = 0;
        code_stripe(g, i, rows);
        for (int row = 0; row < code_strips(g); row++)
            left += !is_lost(s, survey_file_of(s, numbers, &rows[row]));
        if (left < code_data_strips(g)) return 0;
    }
    return 1;
}

static int fail_group(const redundancy_survey *s, const code_group *g, const int *numbers,
                      dcp_error *err) {
    char all[256] = "", lost[256] = "", files[256] = "", rule[64] = "partner";
    int damaged = 0;
    for (int m = 0; m < g->members; m++) {
        int shard = numbers[m], redundant = numbers[m] + s->world;
        append_number(all, sizeof all, shard);
        if (is_lost(s, shard)) append_number(lost, sizeof lost, shard);
        if (is_lost(s, redundant)) append_number(files, sizeof files, shard);
        damaged |= is_lost(s, shard) && s->files[shard].damaged >= 0;
        damaged |= is_lost(s, redundant) && s->files[redundant].damaged >= 0;
    }
    if (g->kind == REDUNDANCY_RS)
        snprintf(rule, sizeof rule, "rs(%d) survives the loss of %d", g->lost, g->lost);
    else
        snprintf(rule, sizeof rule, "partner survives no loss of neighbours");
    return core_fail(err, damaged ? DCP_ERR_CORRUPT : DCP_ERR_NOT_FOUND,
                     "step %llu can't be rebuilt: of the group of shards %s, shards %s and the "
                     "redundancy files of %s are %s, and %s: load an older step",
                     (unsigned long long)s->step, all, *lost ? lost : "(none)",
                     *files ? files : "(none)", damaged ? "damaged or missing" : "missing", rule);
}

/* A shard whose group nobody knows any more: there is no way to rebuild it. */
static int fail_unknown(const redundancy_survey *s, int shard, dcp_error *err) {
    int damaged = s->files[shard].damaged >= 0;
    return core_fail(err, damaged ? DCP_ERR_CORRUPT : DCP_ERR_NOT_FOUND,
                     "step %llu can't be rebuilt: shard %d of %d is %s, and no redundancy file of "
                     "its group is left: load an older step",
                     (unsigned long long)s->step, shard, s->world, damaged ? "damaged" : "missing");
}

int redundancy_survey_check(const redundancy_survey *s, dcp_error *err) {
    code_group g;
    int numbers[REDUNDANCY_MAX_MEMBERS];
    for (int f = 0; f < s->world; f++) {
        if (s->shards[f].leader < 0 && is_lost(s, f)) return fail_unknown(s, f, err);
        if (s->shards[f].leader != f) continue;
        survey_group(s, f, &g, numbers);
        if (!can_rebuild(s, &g, numbers)) return fail_group(s, &g, numbers, err);
    }
    return DCP_OK;
}

uint64_t redundancy_survey_step(const redundancy_survey *s) { return s->step; }

int redundancy_survey_world(const redundancy_survey *s) { return s->world; }

void redundancy_survey_lost(const redundancy_survey *s, int *shards, int *redundancy_files) {
    int n[2] = {0, 0};
    for (int f = 0; f < 2 * s->world; f++) n[f >= s->world] += is_lost(s, f);
    if (shards) *shards = n[0];
    if (redundancy_files) *redundancy_files = n[1];
}

int redundancy_survey_rank(const redundancy_survey *s, int number) {
    return number >= 0 && number < s->world ? s->files[number].rank : -1;
}

const char *redundancy_survey_path(const redundancy_survey *s, int number) {
    return number >= 0 && number < s->world ? s->files[number].path : NULL;
}
