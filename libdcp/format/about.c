/* The text of about.json is composed with zeros in place of its checksum; then the checksum is
 * computed and its digits replace the zeros. The digits are at a fixed distance from the end, so a
 * reader finds them without parsing. */
#include "format/about.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/json.h"
#include "dcp/checkpoint.h"
#include "format/folder.h"
#include "io/file.h"

#define DIGITS 16
#define ZEROS "0000000000000000"
#define TAIL_BEGIN ",\n  \"crc64\": \""
#define TAIL_END "\"\n}\n"
#define TAIL_BYTES (sizeof TAIL_BEGIN - 1 + DIGITS + sizeof TAIL_END - 1)
#define LARGEST (16u << 20)

static int path_of(const char *dir, char *path, dcp_error *err) {
    if (snprintf(path, PATH_MAX, "%s/about.json", dir) < PATH_MAX) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "the path is too long: %s", dir);
}

/* Returns the library's members, then the caller's, then crc64 with zeros. NULL: memory is
 * short. */
static json_t *compose(const char *tool, int ranks, json_t *members) {
    char host[256] = "unknown", when[32];
    time_t now = time(NULL);
    struct tm utc;
    if (gethostname(host, sizeof host - 1) || !core_utf8_is_valid(host, strlen(host)))
        strcpy(host, "unknown");
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *about = json_object();
    bool failed = json_object_set_new(about, "tool", json_string(tool)) ||
                  json_object_set_new(about, "version", json_string(dcp_version())) ||
                  json_object_set_new(about, "time", json_string(when)) ||
                  json_object_set_new(about, "host", json_string(host)) ||
                  json_object_set_new(about, "pid", json_integer(getpid())) ||
                  json_object_set_new(about, "ranks", json_integer(ranks)) ||
                  json_object_update_missing(about, members);
    json_object_del(about, "crc64");
    failed = failed || json_object_set_new(about, "crc64", json_string(ZEROS));
    if (!failed) return about;
    json_decref(about);
    return NULL;
}

static char *digits_of(char *text, size_t bytes) {
    return text + bytes - (sizeof TAIL_END - 1) - DIGITS;
}

static void write_digits(char *digits, uint64_t crc) {
    char text[DIGITS + 1];
    snprintf(text, sizeof text, "%016" PRIx64, crc);
    memcpy(digits, text, DIGITS);
}

static int write_durably(const char *path, const char *text, size_t bytes, dcp_error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return core_fail_errno(err, "cannot make", path);
    int status = io_write_plain(fd, text, bytes, 0, path, err);
    if (status == DCP_OK && fsync(fd) != 0) status = core_fail_errno(err, "cannot sync", path);
    if (close(fd) != 0 && status == DCP_OK) status = core_fail_errno(err, "cannot close", path);
    return status;
}

int format_about_write(const char *dir, const char *tool, int ranks, const char *members_json,
                       dcp_error *err) {
    char path[PATH_MAX];
    json_t *members, *about;
    int status = path_of(dir, path, err);
    if (status != DCP_OK) return status;
    status = core_json_parse_object(members_json, members_json ? strlen(members_json) : 0, &members,
                                    err);
    if (status != DCP_OK) return status;
    about = compose(tool, ranks, members);
    char *text = about ? core_json_exact(about, JSON_INDENT(2)) : NULL, *file = NULL;
    int bytes = text ? asprintf(&file, "%s\n", text) : -1;
    if (bytes < 0) {
        status = core_fail_memory(err, text ? strlen(text) : 0);
    } else {
        write_digits(digits_of(file, (size_t)bytes), core_crc64(file, (size_t)bytes));
        status = write_durably(path, file, (size_t)bytes, err);
        free(file);
    }
    free(text);
    json_decref(about);
    json_decref(members);
    return status;
}

/* Reads the whole file into *out, malloc'd. */
static int read_file(const char *path, char **out, size_t *bytes_out, dcp_error *err) {
    int fd;
    uint64_t bytes;
    char *text = NULL;
    int status = io_open_regular(path, O_RDONLY, &fd, &bytes, err);
    if (status) return status;
    if (bytes > LARGEST || bytes < TAIL_BYTES)
        status = core_fail_at(err, DCP_ERR_CORRUPT, path, "%llu bytes: its size is wrong",
                              (unsigned long long)bytes);
    else if (!(text = malloc(bytes)))
        status = core_fail_memory(err, bytes);
    if (!status) status = io_read_plain(fd, text, bytes, 0, path, err);
    close(fd);
    if (status) {
        free(text);
    } else {
        *out = text;
        *bytes_out = bytes;
    }
    return status;
}

static bool sum_holds(char *text, size_t bytes) {
    char stored[DIGITS], computed[DIGITS], *digits = digits_of(text, bytes);
    const char *begin = digits - (sizeof TAIL_BEGIN - 1), *end = digits + DIGITS;
    if (memcmp(begin, TAIL_BEGIN, sizeof TAIL_BEGIN - 1) != 0 ||
        memcmp(end, TAIL_END, sizeof TAIL_END - 1) != 0)
        return false;
    memcpy(stored, digits, DIGITS);
    memcpy(digits, ZEROS, DIGITS);
    write_digits(computed, core_crc64(text, bytes));
    memcpy(digits, stored, DIGITS);
    return memcmp(stored, computed, DIGITS) == 0;
}

static int parse_checked(const char *path, char *text, size_t bytes, json_t **about,
                         dcp_error *err) {
    if (!sum_holds(text, bytes))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "the checksum does not match its bytes");
    const int status = core_json_parse_object(text, bytes, about, err);
    return status == DCP_ERR_ARG ? core_fail_at(err, DCP_ERR_CORRUPT, path, "not a JSON object")
                                 : status;
}

int format_about_parse(const char *dir, json_t **about, dcp_error *err) {
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    int status = path_of(dir, path, err);
    if (status == DCP_OK) status = read_file(path, &text, &bytes, err);
    if (status != DCP_OK) return status;
    status = parse_checked(path, text, bytes, about, err);
    free(text);
    return status;
}

int format_about_shards(const char *folder, int world, json_t **out, dcp_error *err) {
    unsigned char *here = malloc((size_t)world);
    json_t *list = json_array();
    int n, status = list && here ? format_folder_shards(folder, world, here, &n, err)
                                 : core_fail_memory(err, (uint64_t)world);
    for (int i = 0; i < world && !status; i++)
        if (here[i] && json_array_append_new(list, json_integer(i)))
            status = core_fail_memory(err, (uint64_t)world);
    free(here);
    if (status)
        json_decref(list);
    else
        *out = list;
    return status;
}

int format_about_is_part(const char *folder, int world, unsigned char *kept, bool *is_part,
                         dcp_error *err) {
    json_t *about = NULL, *number;
    size_t i;
    int status = format_about_parse(folder, &about, err);
    *is_part = false;
    if (status) return core_fail_is_unread(status) ? status : DCP_OK;
    const json_t *list = json_object_get(about, "shards");
    *is_part = json_is_array(list);
    memset(kept, 0, (size_t)world);
    json_array_foreach(list, i, number) {
        json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;
        if (value >= 0 && value < world) kept[value] = 1;
    }
    json_decref(about);
    return DCP_OK;
}

/* Checking the checksum is not enough: the about.json of another step has a valid checksum, too.
 * Older versions did not write the step's number. */
int format_about_check_step(const char *dir, const json_t *about, uint64_t step, dcp_error *err) {
    const json_t *said = json_object_get(about, "step");
    if (!json_is_integer(said) || (uint64_t)json_integer_value(said) == step) return DCP_OK;
    return core_fail_path(core_fail(err, DCP_ERR_CORRUPT,
                                    "%s/about.json: it belongs to step %" JSON_INTEGER_FORMAT
                                    ", not %" PRIu64,
                                    dir, json_integer_value(said), step),
                          dir, err);
}

int format_about_check(const char *dir, const uint64_t *step, dcp_error *err) {
    json_t *about = NULL;
    int status = format_about_parse(dir, &about, err);
    if (!status && step) status = format_about_check_step(dir, about, *step, err);
    json_decref(about);
    return status;
}

int dcp_about_read(const char *step_path, char **json, dcp_error *err) {
    if (!step_path || !json)
        return core_fail(err, DCP_ERR_ARG, "dcp_about_read: a path and an output are needed");
    json_t *about = NULL;
    int status = core_path_check(NULL, step_path, err);
    if (status == DCP_OK) status = format_about_parse(step_path, &about, err);
    if (status != DCP_OK) return status;
    *json = core_json_canonical(about);
    json_decref(about);
    return *json ? DCP_OK : core_fail_memory(err, LARGEST);
}
