/* The quick check of a step: do its files exist, do they have the sizes that they state, and do
 * they belong to one layout? It reads user blocks and about.json but no tables, so listing a
 * directory of a thousand steps is fast. */
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/checks.h"
#include "core/fail.h"
#include "core/json.h"
#include "dcp/inspect.h"
#include "format/about.h"
#include "format/folder.h"
#include "format/tables.h"
#include "io/entries.h"

/* Adds the file's size; records the newest time. */
static int measure_file(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    dcp_glance *out = ctx;
    struct stat st;
    if (e->d_type == DT_DIR) return DCP_OK;
    const int status = io_stat(dirfd(of), e->d_name, &st, err);
    if (status == DCP_ERR_NOT_FOUND) return DCP_OK; /* removed meanwhile */
    if (status || !S_ISREG(st.st_mode)) return status;
    out->bytes += (uint64_t)st.st_size;
    if (st.st_mtime > out->written) out->written = st.st_mtime;
    return DCP_OK;
}

static int measure_files(const char *folder, dcp_glance *out, dcp_error *err) {
    return io_visit_entries(AT_FDCWD, folder, folder, measure_file, out, err);
}

/* Returns the member's value if it lies between `least` and INT_MAX; if not, returns the argument
 * `otherwise`. */
static int small_number(const json_t *about, const char *name, int least, int otherwise) {
    const json_t *member = json_object_get(about, name);
    json_int_t n = json_is_integer(member) ? json_integer_value(member) : -1;
    return n >= least && n <= INT_MAX ? (int)n : otherwise;
}

static void take_about(const json_t *about, dcp_glance *out) {
    struct tm tm = {0};
    const json_t *tensors = json_object_get(about, "tensors");
    const char *when = json_string_value(json_object_get(about, "time"));
    out->ranks = small_number(about, "ranks", 1, 0);
    out->survives = small_number(about, "survives", 0, -1);
    out->domains = small_number(about, "domains", 1, 0);
    out->has_names = json_object_get(about, "domain") != NULL;
    json_int_t n = json_is_integer(tensors) ? json_integer_value(tensors) : 0;
    if (n > 0) out->tensors = (uint64_t)n;
    if (when && strptime(when, "%Y-%m-%dT%H:%M:%SZ", &tm)) out->written = timegm(&tm);
}

static int read_about(const char *folder, dcp_glance *out, dcp_error *err) {
    json_t *about = NULL;
    uint64_t named;
    int status = format_about_parse(folder, &about, err);
    if (status == DCP_ERR_NOT_FOUND)
        return core_fail_path(core_fail(err, DCP_ERR_CORRUPT, "%s/about.json is missing", folder),
                              folder, err);
    if (status) return status;
    take_about(about, out);
    if (format_name_read(folder, &named))
        status = format_about_check_step(folder, about, named, err);
    json_decref(about);
    return status;
}

static int check_file(const char *path, dcp_layout layout, format_userblock *ub, dcp_error *err) {
    int status = format_tables_read_userblock(path, ub, err);
    if (!status && ub->layout != layout)
        status = core_fail_at(err, DCP_ERR_CORRUPT, path,
                              "user block: its layout is not that of the file's name");
    return status;
}

/* Checks the files that are marked in `here`, or all files if it is NULL. */
static int check_files(const char *folder, const unsigned char *here, dcp_glance *out,
                       dcp_error *err) {
    format_userblock ub;
    int status = DCP_OK;
    for (int f = 0; f < out->files && !status; f++) {
        if (here && !here[f]) continue;
        char *path = format_folder_path(folder, out->layout, (size_t)f, (size_t)out->files);
        if (!path) return core_fail_memory(err, PATH_MAX);
        status = check_file(path, out->layout, &ub, err);
        free(path);
    }
    if (!status && out->layout == DCP_LAYOUT_GLOBAL) out->tensors = ub.rows;
    return status;
}

/* A private store's folder only has to contain the shards that its about.json lists. If there is no
 * list, or a listed shard is missing, this fails with the error `missing`. */
static int check_part(const char *folder, dcp_glance *out, const dcp_error *missing,
                      dcp_error *err) {
    unsigned char *kept = calloc(2 * (size_t)out->files, 1);
    if (!kept) return core_fail_memory(err, (uint64_t)out->files);
    unsigned char *here = kept + out->files;
    bool is_part;
    int status = format_about_is_part(folder, out->files, kept, &is_part, err);
    if (!status) status = format_folder_shards(folder, out->files, here, &out->files_here, err);
    for (int f = 0; f < out->files && !status && is_part; f++) is_part = here[f] || !kept[f];
    if (!status && is_part) {
        status = check_files(folder, here, out, err);
    } else if (!status) {
        if (err) *err = *missing;
        status = missing->status;
    }
    free(kept);
    return status;
}

static int check_files_of_step(const char *folder, dcp_glance *out, dcp_error *err) {
    size_t n;
    dcp_error e;
    int status = format_folder_files(folder, &n, &out->layout, &e);
    if (!status) {
        out->files = out->files_here = (int)n;
        return check_files(folder, NULL, out, err);
    }
    const int search =
        status == DCP_ERR_CORRUPT ? format_folder_world(folder, INT_MAX, &out->files, err) : DCP_OK;
    if (search) return search;
    if (status == DCP_ERR_CORRUPT && out->files) {
        out->layout = DCP_LAYOUT_SHARDED;
        return check_part(folder, out, &e, err);
    }
    if (err) *err = e;
    return status;
}

static int glance(const char *step_path, dcp_glance *out, dcp_error *err) {
    dcp_error about;
    int status = measure_files(step_path, out, err);
    if (status) return status;
    int about_status = read_about(step_path, out, &about);
    status = check_files_of_step(step_path, out, err);
    if (status || !about_status) return status;
    if (err) *err = about;
    return about_status;
}

int dcp_step_glance(const char *step_path, dcp_glance *out, dcp_error *err) {
    if (!step_path || !out)
        return core_fail(err, DCP_ERR_ARG, "dcp_step_glance: a path and an output are needed");
    int status = core_sized_check(out, sizeof *out, "DCP_GLANCE_INIT", err);
    if (!status) status = core_path_check(NULL, step_path, err);
    if (status) return status;
    dcp_glance seen = {.size = sizeof seen, .written = -1, .survives = -1};
    status = glance(step_path, &seen, err);
    core_sized_copy_out(out, &seen, sizeof seen);
    return status;
}
