/* A file is recognised by its inode number and the time of its last change, so one that anybody has
 * changed is not used. */
#include "store/recycle.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"
#include "store/directory.h"
#include "store/writer_folder.h"

void store_recycle_note(dcp_store *store, uint64_t step, int fd, uint64_t pages) {
    store_written *mark = &store->marks[store->n_marks++ % STORE_WRITTEN];
    *mark = (store_written){.step = step, .pages = pages};
    io_identify(fd, mark->identity);
}

static int is_ours(const dcp_store *store, int fd, uint64_t pages) {
    uint64_t identity[4];
    io_identify(fd, identity);
    for (size_t i = 0; i < STORE_WRITTEN && i < store->n_marks; i++)
        if (!memcmp(store->marks[i].identity, identity, sizeof identity))
            return store->marks[i].pages == pages;
    return 0;
}

int store_recycle_take(dcp_store *store, const char *name, uint64_t pages, const char *path) {
    char recycled[PATH_MAX], folder[STORE_WRITER_FOLDER_PATH];
    if (!store->n_marks) return 0;
    store_writer_folder_entry(store, RECYCLE_FOLDER, folder);
    if (snprintf(recycled, sizeof recycled, "%s/%s/%s", store->dir, folder, name) >=
        (int)sizeof recycled)
        return 0;
    int fd = open(recycled, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return 0;
    int fits = is_ours(store, fd, pages) && io_is_alone(fd);
    close(fd);
    if (fits && rename(recycled, path) == 0) return 1;
    unlink(recycled); /* its space is needed */
    return 0;
}

int store_recycle_is_written(const dcp_store *store, uint64_t step) {
    for (size_t i = 0; i < STORE_WRITTEN && i < store->n_marks; i++)
        if (store->marks[i].step == step) return 1;
    return 0;
}

void store_recycle_drop(dcp_store *store) {
    char folder[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, RECYCLE_FOLDER, folder);
    if (store->n_marks && store->dir_fd >= 0) store_directory_remove(store->dir_fd, folder);
}
