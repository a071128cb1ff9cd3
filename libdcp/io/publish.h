/* Publication: a file that is complete and durable under a temporary name gets its final name by a
 * rename. This part is common to stores, files of other formats and tools. The functions make plain
 * system calls, and return -1 with errno on failure. */
#pragma once

/* Makes a folder's entries durable. Does nothing on file systems whose folders cannot be synced and
 * require no sync. */
int io_publish_sync(int folder_fd);

/* Like io_publish_sync, for the folder that contains `path`. */
int io_publish_sync_parent(const char *path);

/* Renames `tmp`, which is open as `fd` and completely written, to `path`; the file is durable on
 * return. Returns -1 if `path` is unchanged; EBUSY: another file now has the name `tmp`. Returns
 * 1, with errno, if the file has its name but may lose it when power fails, since the folder could
 * not be synced. */
int io_publish_file(int fd, const char *tmp, const char *path);

/* Gives `tmp` the name `name`, which another entry has now; both are entries of the folder dir_fd.
 * Syncs nothing. Returns 1 if the two names were exchanged atomically; 0 if the file system cannot
 * do that, and the previous file was renamed to `aside` first; -1 if the names are unchanged. */
int io_publish_replace(int dir_fd, const char *tmp, const char *name, const char *aside);
