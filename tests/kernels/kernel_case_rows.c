/* Conformance: copies and sums of rows, and patches of images. */
#include "kernel_cases.h"

typedef struct rows_shape {
    size_t rows, dim, y_stride, x_stride;
} rows_shape;

/* Floats from the first row's begin to the last one's end. */
static size_t extent(size_t rows, size_t dim, size_t stride) { return (rows - 1) * stride + dim; }

static void copy_of(conform *c, const rows_shape *s, unsigned flags) {
    size_t ny = extent(s->rows, s->dim, s->y_stride), nx = extent(s->rows, s->dim, s->x_stride);
    float *x = conform_random(c, nx), *before = conform_random(c, ny);
    double *want = conform_wide(c, before, ny);
    for (size_t r = 0; r < s->rows; r++)
        for (size_t i = 0; i < s->dim; i++) {
            double *to = &want[r * s->y_stride + i], from = (double)x[r * s->x_stride + i];
            *to = flags & KERNELS_ADD ? *to + from : from;
        }
    float *y = conform_floats(c, before, ny);
    c->k->copy_rows(c->k, y, s->y_stride, conform_floats(c, x, nx), s->x_stride, s->rows, s->dim,
                    flags);
    conform_close(c, "y", conform_fetch_floats(c, y, ny), want, ny, flags ? 1e-7 : 0.0);
}

static void sum_of(conform *c, const rows_shape *s) {
    size_t nx = extent(s->rows, s->dim, s->y_stride);
    float *x = conform_random(c, nx), *before = conform_random(c, s->dim);
    double *want = conform_wide(c, before, s->dim);
    for (size_t r = 0; r < s->rows; r++)
        for (size_t i = 0; i < s->dim; i++) want[i] += (double)x[r * s->y_stride + i];
    float *sum = conform_floats(c, before, s->dim);
    c->k->sum_rows(c->k, sum, conform_floats(c, x, nx), s->y_stride, s->rows, s->dim);
    conform_close(c, "sum", conform_fetch_floats(c, sum, s->dim), want, s->dim, 2e-6);
}

/* Parts of all lengths, aligned and not, backwards; what lies between them stays. */
static void parts_of(conform *c) {
    enum { PARTS = 40, ROOM = 1200 };
    kernels_part *parts = conform_host(c, PARTS, sizeof *parts);
    float *x = conform_random(c, PARTS * ROOM), *before = conform_random(c, PARTS * ROOM);
    double *want = conform_wide(c, before, PARTS * ROOM);
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = (kernels_part){i * ROOM + i % 5, (PARTS - 1 - i) * ROOM + i % 4, i * 29 % 1190};
        if (i % 8 == 4) parts[i].to = i * ROOM, parts[i].n = 1024; /* in wide accesses */
        for (size_t e = 0; e < parts[i].n; e++)
            want[parts[i].to + e] = (double)x[parts[i].from + e];
    }
    kernels_part *table = conform_given(c, parts, PARTS, sizeof *parts);
    float *y = conform_floats(c, before, PARTS * ROOM);
    c->what = "copy_parts";
    c->k->copy_parts(c->k, y, conform_floats(c, x, PARTS * ROOM), table, PARTS);
    c->k->copy_parts(c->k, y, y, table, 0);
    conform_close(c, "y", conform_fetch_floats(c, y, PARTS * ROOM), want, PARTS * ROOM, 0.0);
}

void case_rows(conform *c) {
    parts_of(c);
    const rows_shape shapes[] = {{1, 1, 1, 1},       {7, 5, 5, 5},       {7, 5, 11, 5},
                                 {3, 64, 64, 192},   {40, 33, 33, 0},    {300, 3, 9, 17},
                                 {2, 1000, 1003, 0}, {9, 128, 130, 256}, {5, 2052, 2052, 2053},
                                 {1100, 40, 44, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        c->what = "copy_rows";
        copy_of(c, &shapes[i], 0);
        copy_of(c, &shapes[i], KERNELS_ADD);
        c->what = "sum_rows";
        sum_of(c, &shapes[i]);
    }
    sum_of(c, &(rows_shape){1030, 2052, 2052, 0});
}

static void reference_patches(double *out, const float *images, const kernels_patches *s) {
    for (size_t n = 0; n < s->batch; n++)
        for (size_t py = 0; py < s->height / s->patch_height; py++)
            for (size_t px = 0; px < s->width / s->patch_width; px++)
                for (size_t ch = 0; ch < s->channels; ch++)
                    for (size_t y = 0; y < s->patch_height; y++)
                        for (size_t x = 0; x < s->patch_width; x++)
                            *out++ = (double)images[((n * s->channels + ch) * s->height +
                                                     py * s->patch_height + y) *
                                                        s->width +
                                                    px * s->patch_width + x];
}

static void patches_of(conform *c, const kernels_patches *s) {
    size_t n = s->batch * s->channels * s->height * s->width;
    size_t patches = (s->height / s->patch_height) * (s->width / s->patch_width);
    size_t out = s->batch * patches * s->channels * s->patch_height * s->patch_width;
    float *images = conform_random(c, n), *got = conform_poisoned(c, out, sizeof *got);
    double *want = conform_host(c, out, sizeof *want);
    reference_patches(want, images, s);
    c->k->patches(c->k, got, conform_floats(c, images, n), s);
    conform_close(c, "out", conform_fetch_floats(c, got, out), want, out, 0.0);
}

/* Square and not, with something left over at the right or the bottom. */
void case_patches(conform *c) {
    const kernels_patches shapes[] = {
        {1, 1, 1, 1, 1, 1},  {2, 3, 16, 16, 4, 4}, {3, 2, 9, 14, 4, 5},
        {1, 1, 30, 7, 3, 7}, {2, 1, 5, 9, 5, 2},   {1, 4, 6, 6, 6, 6},
    };
    c->what = "patches";
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) patches_of(c, &shapes[i]);
}
