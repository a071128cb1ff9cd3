/* Publication: what is complete and durable under a temporary name gets its own name by a rename.
 * The part that stores, files of other formats and tools have in common; plain system calls, which
 * return -1 with errno. */
#pragma once

/* Makes a folder's entries durable. File systems on which folders cannot be synced need no sync. */
int io_publish_sync(int folder_fd);

/* The same of the folder that holds `path`. */
int io_publish_sync_parent(const char *path);

/* Gives the file that is open as `fd`, and written in full, the name `path` in place of `tmp`: it
 * is durable on return. -1: `path` is as it was; EBUSY: another file has the name `tmp` by now. 1,
 * with errno: it has its name, but may lose it with the power, as the folder could not be synced.
 */
int io_publish_file(int fd, const char *tmp, const char *path);

/* Gives `tmp` the name `name`, which something else has; both are entries of the folder dir_fd.
 * Nothing is synced. 1: the two names were exchanged, at once. 0: on a file system that cannot do
 * that, what had the name was renamed to `aside` before. -1: the names are as they were. */
int io_publish_replace(int dir_fd, const char *tmp, const char *name, const char *aside);
