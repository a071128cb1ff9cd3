/* What the fuzzers' targets share: libFuzzer's two functions, promises that are checked, and a
 * folder in memory for readers that require files. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the library promises for any input; a broken promise is a finding, like an invalid
 * access. */
#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: promise broken: %s\n", __FILE__, __LINE__, #condition);        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static char fuzz_dir[64];

static inline void fuzz_remove_folder(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", fuzz_dir);
    if (system(command)) perror(command);
}

/* A folder of this process, removed at its end. */
static inline const char *fuzz_folder(void) {
    if (*fuzz_dir) return fuzz_dir;
    strcpy(fuzz_dir,
           access("/dev/shm", W_OK) ? "/tmp/dcp-fuzz-XXXXXX" : "/dev/shm/dcp-fuzz-XXXXXX");
    PROMISE(mkdtemp(fuzz_dir));
    atexit(fuzz_remove_folder);
    return fuzz_dir;
}

/* Writes a file in the folder; `zeros` zero bytes follow the data. */
static inline void fuzz_file(const char *name, const void *data, size_t bytes, size_t zeros) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    PROMISE(fd >= 0);
    PROMISE(write(fd, data, bytes) == (ssize_t)bytes && !ftruncate(fd, (off_t)(bytes + zeros)));
    close(fd);
}

#endif
