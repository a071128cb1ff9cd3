/* The files of a step in the folders that one rank sees. What can't be read is as damaged as what
 * has wrong bytes: both are lost. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fail.h"
#include "redundancy/survey.h"
#include "step/list.h"

/* The header of a redundancy file; without one it is not usable. */
static int read_header(survey_found *f, const char *folder, const char *name, dcp_error *err) {
    parity_header header;
    uint64_t step;
    int fd;
    if (parity_open(f->path, name, &header, &fd, NULL)) return DCP_OK;
    close(fd);
    if (step_name_read(folder, &step) && step != header.step) return DCP_OK;
    f->header = malloc(sizeof header);
    if (!f->header) return core_fail_memory(err, sizeof header);
    *f->header = header;
    f->usable = 1;
    return DCP_OK;
}

static int add_file(redundancy_survey *s, const char *folder, const char *name, dcp_error *err) {
    survey_found f = {0};
    if (!parity_name_read(name, &f.kind, &f.number, &f.world)) return DCP_OK;
    survey_found *longer = realloc(s->found, (s->n_found + 1) * sizeof *longer);
    if (!longer) return core_fail_memory(err, (s->n_found + 1) * sizeof *longer);
    s->found = longer;
    if (asprintf(&f.path, "%s/%s", folder, name) < 0) return core_fail_memory(err, 4096);
    f.usable = f.kind == REDUNDANCY_NONE;
    int status = f.usable ? DCP_OK : read_header(&f, folder, name, err);
    s->found[s->n_found++] = f;
    return status;
}

int survey_find(redundancy_survey *s, const char *const *folders, size_t n, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) {
        DIR *dir = opendir(folders[i]);
        if (!dir) continue;
        for (struct dirent *entry; !status && (entry = readdir(dir));)
            status = add_file(s, folders[i], entry->d_name, err);
        closedir(dir);
    }
    return status;
}

void survey_found_free(redundancy_survey *s) {
    for (size_t i = 0; i < s->n_found; i++) {
        free(s->found[i].path);
        free(s->found[i].header);
    }
    free(s->found);
}
