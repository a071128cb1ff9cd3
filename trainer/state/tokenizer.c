/* Files are in the state in the order of their names. */
#include "state/tokenizer.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/fail.h"
#include "programs/model_files.h"
#include "state/kept_files.h"

static const char section[] = "/files/";

typedef int (*file_fn)(void *ctx, const char *path, const char *name, uint64_t bytes,
                       dcp_error *err);

static int fail_file(const char *path, dcp_error *err) {
    return core_fail(err, DCP_ERR_ARG,
                     "data.tokenizer: cannot read %s: %s; give the folder of a tokenizer", path,
                     strerror(errno));
}

static int visit_file(const char *path, const char *name, file_fn visit, void *ctx,
                      dcp_error *err) {
    struct stat st;
    if (stat(path, &st) != 0 || access(path, R_OK) != 0) return fail_file(path, err);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return core_fail(err, DCP_ERR_ARG, "data.tokenizer: %s is %s; get it anew", path,
                         S_ISREG(st.st_mode) ? "empty" : "no file");
    return visit(ctx, path, name, (uint64_t)st.st_size, err);
}

static int is_wanted(const struct dirent *entry) { return model_files_is_tokenizer(entry->d_name); }

static int visit_folder(const char *folder, file_fn visit, void *ctx, dcp_error *err) {
    char path[PATH_MAX];
    struct dirent **entries;
    const int n = scandir(folder, &entries, is_wanted, alphasort);
    if (n < 0) return fail_file(folder, err);
    int status = DCP_OK;
    if (n == 0)
        status = core_fail(err, DCP_ERR_ARG,
                           "data.tokenizer: %s holds no file of a tokenizer, as tokenizer.json, "
                           "vocab.json or tokenizer.model is; give a folder that does",
                           folder);
    for (int i = 0; i < n; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        errno = ENAMETOOLONG;
        if (status == DCP_OK && (length < 0 || (size_t)length >= sizeof path))
            status = fail_file(folder, err);
        if (status == DCP_OK) status = visit_file(path, entries[i]->d_name, visit, ctx, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static int visit_all(const char *path, file_fn visit, void *ctx, dcp_error *err) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct stat st;
    if (stat(path, &st) != 0) return fail_file(path, err);
    if (S_ISDIR(st.st_mode)) return visit_folder(path, visit, ctx, err);
    if (model_files_is_tokenizer(name)) return visit_file(path, name, visit, ctx, err);
    return core_fail(err, DCP_ERR_ARG,
                     "data.tokenizer: %s has not the name of a tokenizer's file, as "
                     "tokenizer.json is; a folder that holds one will do as well",
                     path);
}

static int accept(void *ctx, const char *path, const char *name, uint64_t bytes, dcp_error *err) {
    (void)ctx, (void)path, (void)name, (void)bytes, (void)err;
    return DCP_OK;
}

int state_tokenizer_check(const char *path, dcp_error *err) {
    return visit_all(path, accept, NULL, err);
}

static int keep_file(void *ctx, const char *path, const char *name, uint64_t bytes,
                     dcp_error *err) {
    (void)bytes;
    return state_files_keep(ctx, "data.tokenizer", path, name, err);
}

int state_tokenizer_keep(train_state *s, const char *path, dcp_error *err) {
    for (size_t i = 0; i < s->n_files; i++)
        if (model_files_is_tokenizer(s->files[i].tensor.path + strlen(section))) return DCP_OK;
    return visit_all(path, keep_file, s, err);
}
