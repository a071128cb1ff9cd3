/* Runs a target once on each file of the given folders, in a build without libFuzzer. */
#include <dirent.h>

#include "fuzz.h"

static int replay_file(int folder, const char *name) {
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    uint8_t *data = bytes < 0 ? NULL : malloc((size_t)bytes + 1), *exact;
    int ok = data && pread(fd, data, (size_t)bytes, 0) == (ssize_t)bytes;
    if (fd >= 0) close(fd);
    exact = ok && bytes ? realloc(data, (size_t)bytes) : data; /* shows a read past its end */
    if (ok) LLVMFuzzerTestOneInput(exact, (size_t)bytes);
    free(exact);
    return ok ? 0 : -1;
}

static long replay_folder(const char *path) {
    long n = 0;
    DIR *folder = opendir(path);
    if (!folder) return -1;
    for (struct dirent *e; n >= 0 && (e = readdir(folder));) {
        if (e->d_name[0] == '.') continue;
        n = replay_file(dirfd(folder), e->d_name) ? -1 : n + 1;
    }
    closedir(folder);
    return n;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        long n = replay_folder(argv[i]);
        printf("%s: %ld inputs\n", argv[i], n);
        if (n <= 0) return 1; /* an empty folder proves nothing */
    }
    return argc < 2;
}
