#include "store/writer_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/directory.h"
#include "store/lock.h"

void store_writer_folder_entry(const dcp_store *store, const char *entry,
                               char path[STORE_WRITER_FOLDER_PATH]) {
    snprintf(path, STORE_WRITER_FOLDER_PATH, STORE_WRITER_FOLDER "%s/%s", store->writer, entry);
}

void store_writer_folder_make(const dcp_store *store) {
    char path[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, "", path);
    mkdirat(store->dir_fd, path, 0777);
}

int store_writer_folder_ready(const dcp_store *store, dcp_error *err) {
    char path[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, "", path);
    if (mkdirat(store->dir_fd, path, 0777) != 0 && errno != EEXIST)
        return store_fail_errno(store, "cannot make directory", path, err);
    return store_lock_check(store->lock, err);
}

void store_writer_folder_drop(const dcp_store *store) {
    char path[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, "spare", path);
    store_directory_remove(store->dir_fd, path);
    store_writer_folder_entry(store, "", path);
    unlinkat(store->dir_fd, path, AT_REMOVEDIR); /* stays where there is a step in it */
}
