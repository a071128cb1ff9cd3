/* Samples by global number: sample g is number g % samples of epoch g / samples. With several
 * sources, samples form cycles of DATA_CYCLE samples, and a permutation of g's cycle selects the
 * source. The sample's index in that source is the count of the source's samples before g, in this
 * cycle and all earlier ones. */
#include "data/data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/source.h"
#include "programs/fail.h"
#include "random/random.h"

/* Limits of the checksum. For each source, it covers all samples if there are at most ALL_SAMPLES,
 * with at most CHECKED_BYTES in total. Otherwise it covers at most SOME_SAMPLES samples, with at
 * most CHECKED_BYTES in total, but at least one sample. */
enum { ALL_SAMPLES = 4096, SOME_SAMPLES = 256, CHECKED_BYTES = 16 << 20 };

typedef struct data_part {
    void *state;
    uint64_t samples;      /* per epoch */
    uint32_t first, count; /* the part's first position in a cycle, and its number of positions */
} data_part;

/* The samples of a cycle, in their order. */
typedef struct data_cycle {
    bool is_known;
    uint64_t seed, number;
    uint8_t part[DATA_CYCLE];
    uint16_t within[DATA_CYCLE]; /* the number of the part's earlier samples in this cycle */
} data_cycle;

struct data {
    const data_source *source;
    data_part parts[1 + CONFIG_MAX_SOURCES];
    size_t n;         /* open parts */
    data_cycle cycle; /* the last one that was requested */
    uint64_t fingerprint;
    sample_shape shape;
};

/* A kind of samples, and the types of data that have samples of this kind. */
typedef struct sample_kind {
    const char *name, *types;
} sample_kind;

static const sample_kind of_tokens = {"tokens", "text, tokens or records"};
static const sample_kind of_numbers = {"images or vectors", "idx or safetensors"};
static const sample_kind of_speech = {"recordings", "speech"};

static const sample_kind *kind_of(const sample_shape *shape) {
    return shape->frames ? &of_speech : shape->tokens ? &of_tokens : &of_numbers;
}

static bool gives(const data_source *source, const sample_kind *kind) {
    return kind == &of_speech   ? source->speech
           : kind == &of_tokens ? source->tokens
                                : source->numbers;
}

static int find_source(const data_options *options, const data_source **out, dcp_error *err) {
    static const data_source *const sources[] = {&data_text,       &data_tokens, &data_records,
                                                 &data_recordings, &data_idx,    &data_fixed};
    const sample_kind *kind = kind_of(&options->shape);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if (strcmp(sources[i]->type, options->type) != 0) continue;
        *out = sources[i];
        if (gives(sources[i], kind)) return DCP_OK;
        return core_fail(err, DCP_ERR_ARG,
                         "data.type: %s gives %s, but the model takes %s; set data.type to %s",
                         options->type,
                         sources[i]->speech   ? "recordings"
                         : sources[i]->tokens ? "tokens"
                                              : "images",
                         kind->name, kind->types);
    }
    return core_fail(err, DCP_ERR_UNSUPPORTED, "data.type: %s is not implemented", options->type);
}

int data_fail_for_key(const char *key, int status, const dcp_error *why, dcp_error *err) {
    static const char path[] = "data.path: ";
    const size_t n = strlen(path);
    const char *what = why->message;
    if (strncmp(what, path, n) == 0) what += n;
    return core_fail(err, status, "%s: %s", key, what);
}

static int blame_source(size_t i, int status, const dcp_error *why, dcp_error *err) {
    char key[64];
    if (i == 0) return core_fail(err, status, "%s", why->message);
    snprintf(key, sizeof key, "data.sources[%zu].path", i - 1);
    return data_fail_for_key(key, status, why, err);
}

static uint64_t count_checked(uint64_t samples, uint64_t sample_bytes) {
    const uint64_t most = CHECKED_BYTES / sample_bytes,
                   some = most < SOME_SAMPLES ? most : SOME_SAMPLES;
    if (samples <= most && samples <= ALL_SAMPLES) return samples;
    return some == 0 ? 1 : some < samples ? some : samples;
}

/* FNV-1a over n words of 4 bytes. */
static uint64_t hash_words(uint64_t hash, const void *memory, uint64_t n) {
    const char *at = memory;
    uint32_t word;
    for (uint64_t i = 0; at && i < n; i++) {
        memcpy(&word, at + i * sizeof word, sizeof word);
        hash = (hash ^ word) * 0x100000001b3;
    }
    return hash;
}

/* Hashes the first samples in the order of epoch 0 with seed 0, an order in which neighbours are
 * spread over the data. room: memory for one sample. */
static int hash_samples(const data *d, const data_part *part, const sample_batch *room,
                        uint64_t words, uint64_t *hash, dcp_error *err) {
    const uint64_t samples = part->samples, n = count_checked(samples, words * 4);
    *hash = hash_words(*hash, &samples, 2);
    for (uint64_t i = 0; i < n; i++) {
        const int status = d->source->read(part->state, 0, 0, i, room, err);
        if (status != DCP_OK) return status;
        *hash = hash_words(*hash, room->ids, model_sample_ids(&d->shape));
        *hash = hash_words(*hash, room->values, model_sample_values(&d->shape));
        *hash = hash_words(*hash, room->targets, d->shape.targets);
        *hash = hash_words(*hash, room->places, d->shape.tokens);
    }
    return DCP_OK;
}

/* Hashes all sources, one after the other, and, if there are several, their shares. */
static int hash_parts(data *d, const sample_batch *room, uint64_t words, dcp_error *err) {
    uint64_t hash = 0xcbf29ce484222325;
    int status = DCP_OK;
    for (size_t i = 0; i < d->n && status == DCP_OK; i++) {
        dcp_error why;
        status = hash_samples(d, &d->parts[i], room, words, &hash, &why);
        if (status != DCP_OK) status = blame_source(i, status, &why, err);
        if (d->n > 1) hash = hash_words(hash, &d->parts[i].count, 1);
    }
    d->fingerprint = hash;
    return status;
}

/* Allocates memory for one sample, and sets *words to its size in words of 4 bytes. The caller
 * frees *memory. */
static int make_sample_room(const data *d, sample_batch *room, uint64_t *words, void **memory,
                            dcp_error *err) {
    const uint64_t values = model_sample_values(&d->shape), ids = model_sample_ids(&d->shape);
    const uint64_t places = d->shape.packed ? ids : 0;
    *words = ids + values + d->shape.targets + places;
    int32_t *at = *memory = malloc(*words * sizeof *at);
    if (!at) return core_fail_memory(err, *words * sizeof *at);
    *room = (sample_batch){.targets = at + ids + values};
    if (ids) room->ids = at;
    if (values) room->values = (float *)(at + ids);
    if (places) room->places = room->targets + d->shape.targets;
    return DCP_OK;
}

static int take_fingerprint(data *d, dcp_error *err) {
    sample_batch room;
    uint64_t words;
    void *memory;
    int status = make_sample_room(d, &room, &words, &memory, err);
    if (status == DCP_OK) status = hash_parts(d, &room, words, err);
    free(memory);
    return status;
}

static int open_parts(data *d, const data_options *options, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i <= options->n_others && status == DCP_OK; i++) {
        data_options own = *options;
        dcp_error why;
        if (i > 0) own.path = options->others[i - 1].path;
        data_part *part = &d->parts[i];
        status = d->source->open(&own, &part->state, &why);
        if (status != DCP_OK) return blame_source(i, status, &why, err);
        part->samples = d->source->samples(part->state);
        d->n++;
    }
    return status;
}

static double weight_of(const data_options *options, size_t i) {
    return i == 0 ? 1 : options->others[i - 1].weight;
}

/* Divides a cycle's positions: part i gets [first, first + count). Ends are rounded, so each
 * source's share is off by less than one sample. */
static int share_cycle(data *d, const data_options *options, dcp_error *err) {
    double all = 0, before = 0;
    for (size_t i = 0; i < d->n; i++) all += weight_of(options, i);
    for (size_t i = 0; i < d->n; i++) {
        const double after = before + weight_of(options, i);
        const uint32_t first = (uint32_t)(before / all * DATA_CYCLE + 0.5),
                       end = (uint32_t)(after / all * DATA_CYCLE + 0.5);
        if (first == end)
            return core_fail(err, DCP_ERR_ARG,
                             "data.sources: by its weight, %s gets less than one sample in %d; "
                             "leave this source out, or give it more weight",
                             i == 0 ? options->path : options->others[i - 1].path, DATA_CYCLE);
        d->parts[i].first = first;
        d->parts[i].count = end - first;
        before = after;
    }
    return DCP_OK;
}

int data_open(const data_options *options, data **out, dcp_error *err) {
    data *d = calloc(1, sizeof *d);
    if (!d) return core_fail_memory(err, sizeof *d);
    d->shape = options->shape;
    int status = find_source(options, &d->source, err);
    if (status == DCP_OK) status = open_parts(d, options, err);
    if (status == DCP_OK) status = share_cycle(d, options, err);
    if (status == DCP_OK) status = take_fingerprint(d, err);
    if (status == DCP_OK)
        *out = d;
    else
        data_close(d);
    return status;
}

void data_close(data *d) {
    if (!d) return;
    for (size_t i = 0; i < d->n; i++) d->source->close(d->parts[i].state);
    free(d);
}

void data_normalize(data *d, const sample_normalization *how) {
    for (size_t i = 0; i < d->n && d->source->normalize; i++)
        d->source->normalize(d->parts[i].state, how);
}

uint64_t data_samples(const data *d) {
    uint64_t samples = 0;
    for (size_t i = 0; i < d->n; i++) samples += d->parts[i].samples;
    return samples;
}

void data_packed(const data *d, uint64_t *records, double *share) {
    uint64_t tokens = 0;
    *records = 0;
    for (size_t i = 0; i < d->n; i++) d->source->count(d->parts[i].state, records, &tokens);
    *share = (double)tokens / ((double)data_samples(d) * (double)d->shape.tokens);
}

void data_files_describe(const data *d, data_contents *out) {
    *out = (data_contents){0};
    for (size_t i = 0; i < d->n && d->source->contents; i++)
        d->source->contents(d->parts[i].state, out);
}

uint64_t data_fingerprint(const data *d) { return d->fingerprint; }

static void make_cycle(data *d, uint64_t seed, uint64_t number) {
    data_cycle *c = &d->cycle;
    uint16_t before[1 + CONFIG_MAX_SOURCES] = {0};
    if (c->is_known && c->seed == seed && c->number == number) return;
    for (uint64_t i = 0; i < DATA_CYCLE; i++) {
        const uint64_t place = random_permute(i, DATA_CYCLE, seed, number);
        uint8_t part = 0;
        while (place >= d->parts[part].first + d->parts[part].count) part++;
        c->part[i] = part;
        c->within[i] = before[part]++;
    }
    c->seed = seed;
    c->number = number;
    c->is_known = true;
}

/* Returns the part to which sample g belongs. *own: the sample's number in that part. */
static const data_part *find_part(data *d, uint64_t seed, uint64_t g, uint64_t *own) {
    *own = g;
    if (d->n == 1) return d->parts;
    const uint64_t cycle = g / DATA_CYCLE, i = g % DATA_CYCLE;
    make_cycle(d, seed, cycle);
    const data_part *part = &d->parts[d->cycle.part[i]];
    *own = cycle * part->count + d->cycle.within[i];
    return part;
}

static int read_sample(data *d, uint64_t seed, uint64_t g, const sample_batch *out,
                       dcp_error *err) {
    uint64_t own;
    dcp_error why;
    const data_part *part = find_part(d, seed, g, &own);
    const int status =
        d->source->read(part->state, seed, own / part->samples, own % part->samples, out, &why);
    return status == DCP_OK ? DCP_OK : blame_source((size_t)(part - d->parts), status, &why, err);
}

/* Adds to counted[], for each loss, how many of the n samples' targets count. */
static void count_targets(const data *d, const sample_batch *samples, uint64_t n,
                          uint64_t *counted) {
    for (uint64_t i = 0; i < n * d->shape.targets; i++)
        if (samples->targets[i] != SAMPLE_IGNORE)
            counted[model_sample_loss_of(&d->shape, i % d->shape.targets)]++;
}

int data_read(data *d, uint64_t seed, uint64_t first, uint64_t n, const sample_batch *out,
              uint64_t *counted, dcp_error *err) {
    for (uint64_t g = first; g < first + n; g++) {
        const sample_batch at = model_sample_batch_at(out, &d->shape, g - first);
        const int status = read_sample(d, seed, g, &at, err);
        if (status != DCP_OK) return status;
    }
    for (size_t i = 0; i < model_sample_losses(&d->shape); i++) counted[i] = 0;
    count_targets(d, out, n, counted);
    return DCP_OK;
}

int data_check(data *d, uint64_t first, uint64_t n, uint64_t *counted, dcp_error *err) {
    sample_batch room;
    uint64_t words;
    void *memory;
    int status = make_sample_room(d, &room, &words, &memory, err);
    for (uint64_t g = first; g < first + n && status == DCP_OK; g++) {
        status = read_sample(d, 0, g, &room, err);
        if (status == DCP_OK) count_targets(d, &room, 1, counted);
    }
    free(memory);
    return status;
}
