/* Files are cut over the ranks like any tensor; each rank reads its part. */
#include "state/kept_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/fail.h"
#include "ranks/agree.h"

static const char section[] = "/files/";

const kept_file *state_files_find(const train_state *s, const char *name) {
    for (size_t i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i].tensor.path + strlen(section), name) == 0) return &s->files[i];
    return NULL;
}

uint64_t state_files_bytes(const train_state *s) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->n_files; i++) bytes += s->files[i].box.count[0];
    return bytes;
}

static int fail_file(const char *key, const char *path, dcp_error *err) {
    return core_fail(err, DCP_ERR_ARG, "%s: cannot read %s: %s", key, path, strerror(errno));
}

/* This rank's part of it. */
static int read_part(const kept_file *file, const char *key, const char *path, dcp_error *err) {
    const uint64_t bytes = file->box.count[0];
    uint64_t done = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_file(key, path, err);
    while (done < bytes) {
        const ssize_t n =
            pread(fd, (char *)file->data + done, bytes - done, (off_t)(file->box.start[0] + done));
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENODATA; /* it has become shorter */
        if (n <= 0) break;
        done += (uint64_t)n;
    }
    const int status = done < bytes ? fail_file(key, path, err) : DCP_OK;
    close(fd);
    return status;
}

int state_files_keep(train_state *s, const char *key, const char *path, const char *name,
                     dcp_error *err) {
    char full[sizeof section + NAME_MAX];
    struct stat st;
    if (stat(path, &st) != 0) return fail_file(key, path, err);
    snprintf(full, sizeof full, "%s%s", section, name);
    const int status = state_add_file(s, full, (uint64_t)st.st_size, err);
    return status == DCP_OK ? read_part(&s->files[s->n_files - 1], key, path, err) : status;
}

int state_files_keep_init(train_state *s, const char *folder, const char *name, dcp_error *err) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path) return DCP_OK;
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) return DCP_OK;
    return state_files_keep(s, "init", path, name, err);
}

int state_files_gather(const kept_file *file, MPI_Comm comm, char **text, uint64_t *bytes,
                       dcp_error *err) {
    int world;
    MPI_Comm_size(comm, &world);
    *bytes = file->tensor.shape[0];
    *text = NULL;
    if (*bytes >= INT_MAX) /* the same on all ranks */
        return core_fail_tensor(core_fail(err, DCP_ERR_UNSUPPORTED,
                                          "%s has %" PRIu64 " bytes: files of less than 2 GiB are "
                                          "read",
                                          file->tensor.path, *bytes),
                                file->tensor.path, err);
    char *own = malloc(*bytes + 1);
    const int status = ranks_agree(comm, own ? DCP_OK : core_fail_memory(err, *bytes), err);
    if (status != DCP_OK) {
        free(own);
        return status;
    }
    *text = own;
    memcpy(*text + file->box.start[0], file->data, file->box.count[0]);
    for (int r = 0; r < world; r++) {
        const dcp_box box = dcp_box_chunk(&file->tensor, r, world);
        MPI_Bcast(*text + box.start[0], (int)box.count[0], MPI_BYTE, r, comm);
    }
    (*text)[*bytes] = '\0';
    return DCP_OK;
}
