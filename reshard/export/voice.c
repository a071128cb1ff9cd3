#include "export/voice.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dcp/safetensors.h>

#include "common/element.h"
#include "programs/program.h"

#define TABLE "talker.model.codec_embedding.weight"

/* Rows of published folders begin here; a small table has its last one. */
enum { FIRST_ROW = 3000 };

static int lower_name(const char *name, export_voice *out) {
    const size_t n = strlen(name);
    if (n == 0 || n >= sizeof out->name)
        return program_refuse("--voice: a name has 1 to %zu characters", sizeof out->name - 1);
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)name[i]) && !strchr("_-", name[i]))
            return program_refuse("--voice: '%s': a name is of letters, digits, _ and -", name);
        out->name[i] = (char)tolower((unsigned char)name[i]);
    }
    return 0;
}

static int find_table(const dcp_checkpoint *ckpt, const export_contents *contents,
                      export_voice *out) {
    for (size_t i = 0; i < contents->n; i++) {
        const dcp_tensor *tensor = &contents->items[i].tensor;
        if (strcmp(tensor->path, TABLE) != 0) continue;
        out->item = i;
        if (tensor->ndim == 2 && element_is_float(tensor->dtype)) return 0;
    }
    return program_refuse("%s: has no " TABLE ", so --voice has no place in it: export it without",
                          dcp_checkpoint_path(ckpt));
}

static int is_taken(const json_t *voices, uint64_t row) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)voices, name,
                        value) if (json_integer_value(value) == (json_int_t)row) return 1;
    return 0;
}

/* A voice of that name keeps its row. */
static int choose_row(const dcp_checkpoint *ckpt, const export_contents *contents,
                      export_voice *out) {
    const uint64_t rows = contents->items[out->item].tensor.shape[0];
    json_t *config = export_contents_config(ckpt);
    const json_t *voices = json_object_get(json_object_get(config, "talker_config"), "spk_id");
    const json_t *own = json_object_get(voices, out->name);
    out->row = rows > FIRST_ROW ? FIRST_ROW : rows - 1;
    if (json_is_integer(own) && json_integer_value(own) >= 0)
        out->row = (uint64_t)json_integer_value(own);
    else
        while (out->row < rows && is_taken(voices, out->row)) out->row++;
    json_decref(config);
    if (out->row < rows) return 0;
    return program_refuse("%s: no row of " TABLE
                          " is left for --voice; give it the name of a voice "
                          "that it may replace",
                          dcp_checkpoint_path(ckpt));
}

/* Whatever is wrong with it, the checkpoint is not. */
static int refuse_file(const dcp_error *why) {
    return program_refuse("--voice-from: %s; give it the records of that voice "
                          "(examples/talker/to_records.py)",
                          why->message);
}

static int read_vector(dcp_st_reader *reader, const char *file, uint64_t hidden,
                       export_voice *out) {
    dcp_error err;
    const dcp_tensor *t = dcp_st_find(reader, "speakers");
    if (!t || t->dtype != DCP_F32 || t->ndim != 2 || t->shape[0] != 1 || t->shape[1] != hidden)
        return program_refuse("--voice-from: %s: speakers is no F32 of [1,%" PRIu64
                              "]; make records of one reference recording, with this model's size "
                              "(examples/talker/to_records.py)",
                              file, hidden);
    out->vector = malloc(hidden * sizeof *out->vector);
    if (!out->vector) return program_no_memory();
    if (dcp_st_read(reader, "speakers", 0, hidden * sizeof *out->vector, out->vector, &err))
        return refuse_file(&err);
    for (uint64_t i = 0; i < hidden; i++)
        if (!isfinite(out->vector[i]))
            return program_refuse("--voice-from: %s: number %" PRIu64
                                  " of the vector is not finite; make the records anew",
                                  file, i);
    return 0;
}

int export_voice_open(const dcp_checkpoint *ckpt, const export_contents *contents, const char *name,
                      const char *file, export_voice *out) {
    dcp_error err;
    dcp_st_reader *reader;
    *out = (export_voice){0};
    int status = lower_name(name, out);
    if (!status) status = find_table(ckpt, contents, out);
    if (!status) status = choose_row(ckpt, contents, out);
    if (status) return status;
    if (dcp_st_open(file, &reader, &err)) return refuse_file(&err);
    status = read_vector(reader, file, contents->items[out->item].tensor.shape[1], out);
    dcp_st_close(reader);
    if (status) export_voice_close(out);
    return status;
}

void export_voice_close(export_voice *voice) {
    free(voice->vector);
    voice->vector = NULL;
}

/* The object of that key, made where there is none. */
static json_t *object_of(json_t *parent, const char *key) {
    if (!json_is_object(json_object_get(parent, key)))
        json_object_set_new(parent, key, json_object());
    return json_object_get(parent, key);
}

void export_voice_name(const export_voice *voice, json_t *config) {
    json_t *talker = object_of(config, "talker_config");
    json_object_set_new(config, "tts_model_type", json_string("custom_voice"));
    json_object_set_new(object_of(talker, "spk_id"), voice->name,
                        json_integer((json_int_t)voice->row));
    json_object_set_new(object_of(talker, "spk_is_dialect"), voice->name, json_false());
}

static int write_at(const char *path, const void *data, uint64_t bytes, uint64_t offset) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return program_fail_errno("cannot open", path);
    const ssize_t put = pwrite(fd, data, bytes, (off_t)offset);
    int status = 0;
    if (put != (ssize_t)bytes || fsync(fd)) status = program_fail_errno("cannot write", path);
    close(fd);
    return status;
}

int export_voice_write(const export_voice *voice, const export_contents *contents,
                       const char *dir) {
    char path[PATH_MAX + 80];
    const export_item *item = &contents->items[voice->item];
    const dcp_tensor *table = &item->tensor;
    const uint64_t n = table->shape[1], bytes = n * dcp_dtype_bytes(table->dtype);
    void *row = malloc(bytes);
    if (!row) return program_no_memory();
    dcp_convert(DCP_F32, voice->vector, table->dtype, row, n);
    snprintf(path, sizeof path, "%s/%s", dir, contents->files[item->file].name);
    const int status = write_at(path, row, bytes, item->offset + voice->row * bytes);
    free(row);
    return status;
}
