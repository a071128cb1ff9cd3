#include "inspect/histogram.h"

#include <math.h>
#include <string.h>

enum { BIAS = 1023, TOP = HISTOGRAM_BINS - 1, WIDTH = 28 };

void histogram_add(histogram *h, const double *values, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        if (bits >> 63)
            h->negative[bits >> 52 & TOP]++;
        else
            h->positive[bits >> 52 & TOP]++;
        if (!(bits << 1)) /* zero, which has no magnitude */
            --*(bits >> 63 ? &h->negative[0] : &h->positive[0]);
    }
}

void histogram_join(histogram *h, const histogram *more) {
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        h->positive[i] += more->positive[i];
        h->negative[i] += more->negative[i];
    }
}

/* The bins with numbers are [*low, *high]; 0 where there are none. */
static int find_range(const histogram *h, int *low, int *high) {
    *low = TOP;
    *high = -1;
    for (int i = 0; i < TOP; i++) {
        if (!h->positive[i] && !h->negative[i]) continue;
        if (i < *low) *low = i;
        *high = i;
    }
    return *high >= 0;
}

static uint64_t sum_bins(const uint64_t *bins, int from, int n) {
    uint64_t sum = 0;
    for (int i = from; i < from + n && i < TOP; i++) sum += bins[i];
    return sum;
}

/* At least one mark for what is not nothing. */
static int length_of(uint64_t n, uint64_t most) {
    return n ? 1 + (int)((double)n / (double)most * (WIDTH - 1)) : 0;
}

static void draw_row(uint64_t negative, uint64_t positive, uint64_t most, uint64_t total,
                     double magnitude, FILE *out) {
    static const char marks[] = "############################";
    int left = length_of(negative, most), right = length_of(positive, most);
    fprintf(out, "  %9.2e %*s%.*s|%.*s%*s %6.2f%%\n", magnitude, WIDTH - left, "", left, marks,
            right, marks, WIDTH - right, "",
            total ? 100 * (double)(negative + positive) / (double)total : 0);
}

void histogram_draw(const histogram *h, uint64_t total, int rows, FILE *out) {
    int low, high;
    uint64_t most = 0;
    if (!find_range(h, &low, &high)) return;
    int group = (high - low) / rows + 1;
    for (int i = low; i <= high; i += group) {
        uint64_t negative = sum_bins(h->negative, i, group), n = sum_bins(h->positive, i, group);
        if (negative > n) n = negative;
        if (n > most) most = n;
    }
    fprintf(out, "  %-9s %*s|%s\n", "from", WIDTH, "negative", "positive");
    for (int i = low; i <= high; i += group)
        draw_row(sum_bins(h->negative, i, group), sum_bins(h->positive, i, group), most, total,
                 ldexp(1, i - BIAS), out);
}

json_t *histogram_json(const histogram *h) {
    int low, high;
    json_t *negative = json_array(), *positive = json_array();
    int any = find_range(h, &low, &high);
    for (int i = low; any && i <= high; i++) {
        json_array_append_new(negative, json_integer((json_int_t)h->negative[i]));
        json_array_append_new(positive, json_integer((json_int_t)h->positive[i]));
    }
    if (any)
        return json_pack("{s:i, s:o, s:o}", "log2", low - BIAS, "negative", negative, "positive",
                         positive);
    json_decref(negative);
    json_decref(positive);
    return json_null();
}
