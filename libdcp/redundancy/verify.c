/* Every byte of the redundancy files in one folder. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fail.h"
#include "redundancy/parity.h"
#include "step/list.h"

static int is_redundancy(const char *name) {
    uint64_t number;
    int world;
    redundancy_kind kind;
    return parity_name_read(name, &kind, &number, &world) && kind != REDUNDANCY_NONE;
}

/* A failure that is damage is reported, another one is returned. */
static int open_reported(const char *path, const char *name, const redundancy_reader *reader,
                         parity_header *h, int *fd, dcp_error *err) {
    dcp_error e;
    int status = parity_open(path, name, h, fd, &e);
    if (status == DCP_ERR_CORRUPT || status == DCP_ERR_VERSION) {
        reader->on_damage(reader->ctx, e.message);
        return DCP_OK;
    }
    if (status && err) *err = e;
    return status;
}

static int verify_file(const char *folder, const char *name, const redundancy_reader *reader,
                       dcp_error *err) {
    parity_header h;
    char *path, line[4300];
    uint64_t step;
    int fd = -1;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return core_fail_memory(err, 4096);
    int status = open_reported(path, name, reader, &h, &fd, err);
    if (fd < 0) goto free_path;
    if (step_name_read(folder, &step) && step != h.step) {
        snprintf(line, sizeof line, "%s: header: it is of step %llu", path,
                 (unsigned long long)h.step);
        reader->on_damage(reader->ctx, line);
    }
    status = parity_check_payload(&h, fd, path, reader, err);
    close(fd);
free_path:
    free(path);
    return status;
}

int redundancy_verify(const char *folder, const redundancy_reader *reader, dcp_error *err) {
    DIR *dir = opendir(folder);
    if (!dir) return core_fail_errno(err, "cannot open", folder);
    int status = DCP_OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));)
        if (is_redundancy(entry->d_name)) status = verify_file(folder, entry->d_name, reader, err);
    closedir(dir);
    return status;
}

uint64_t redundancy_bytes(const char *folder) {
    DIR *dir = opendir(folder);
    struct stat st;
    uint64_t bytes = 0;
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (is_redundancy(entry->d_name) && !fstatat(dirfd(dir), entry->d_name, &st, 0))
            bytes += (uint64_t)st.st_size;
    closedir(dir);
    return bytes;
}
