#include "report/series.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

static const struct {
    const char *key;
    int may_lack;
} keys[SERIES_COLUMNS] = {
    [SERIES_STEP] = {"step", 0},
    [SERIES_LOSS] = {"loss", 0},
    [SERIES_TOKENS_PER_S] = {"tokens_per_s", 0},
    [SERIES_STALL] = {"save_stall_s", 0},
    [SERIES_EVAL_LOSS] = {"eval_loss", 1},
    [SERIES_RANKS] = {"ranks", 1},
};

static int make_room(series *s) {
    if (s->n < s->room) return 0;
    const size_t room = s->room ? 2 * s->room : 1024;
    for (int c = 0; c < SERIES_COLUMNS; c++) {
        double *column = realloc(s->columns[c], room * sizeof *column);
        if (!column) return -1;
        s->columns[c] = column;
    }
    s->room = room;
    return 0;
}

/* Whether the object is a line of metrics; it follows those of earlier steps. */
static int take(series *s, const json_t *line) {
    double values[SERIES_COLUMNS];
    for (int c = 0; c < SERIES_COLUMNS; c++) {
        const json_t *value = json_object_get(line, keys[c].key);
        if (value ? !json_is_number(value) : !keys[c].may_lack) return 0;
        values[c] = value ? json_number_value(value) : NAN;
    }
    while (s->n && s->columns[SERIES_STEP][s->n - 1] >= values[SERIES_STEP]) s->n--;
    for (int c = 0; c < SERIES_COLUMNS; c++) s->columns[c][s->n] = values[c];
    s->n++;
    return 1;
}

static int read_lines(FILE *file, const char *path, series *s, dcp_error *err) {
    char *text = NULL;
    size_t room = 0, number = 0;
    ssize_t n;
    int status = DCP_OK;
    while (status == DCP_OK && (n = getline(&text, &room, file)) > 0) {
        number++;
        if (make_room(s) != 0) {
            status = core_fail_memory(err, s->room * sizeof(double));
            break;
        }
        json_t *line = json_loadb(text, (size_t)n, 0, NULL);
        if (!take(s, line) && text[n - 1] == '\n')
            status = core_fail(err, DCP_ERR_ARG, "%s:%zu: no line of a metrics file", path, number);
        json_decref(line);
    }
    if (status == DCP_OK && ferror(file))
        status = core_fail(err, DCP_ERR_ARG, "%s: cannot read: %s", path, strerror(errno));
    free(text);
    return status;
}

int series_read(const char *path, series *out, dcp_error *err) {
    *out = (series){0};
    FILE *file = fopen(path, "re");
    if (!file) return core_fail(err, DCP_ERR_ARG, "%s: cannot read: %s", path, strerror(errno));
    const int status = read_lines(file, path, out, err);
    fclose(file);
    if (status != DCP_OK || out->n) return status;
    return core_fail(err, DCP_ERR_ARG, "%s: no step is in it yet", path);
}

void series_free(series *s) {
    for (int c = 0; c < SERIES_COLUMNS; c++) free(s->columns[c]);
}
