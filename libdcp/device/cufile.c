/* The functions of a device's files over cuFile. The library is loaded when somebody asks for it:
 * programs that do not should not pay for it, nor machines without it fail. It stays loaded, and
 * its driver open, until the process ends: others in the process may be using it as well. */
#include "device/cufile.h"

#include <cufile.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#ifndef CUFILE_MODULES
#define CUFILE_MODULES "/proc/modules" /* cuFile reads it for ever where it is not there */
#endif

enum { NO_LIBRARY = CUFILEOP_BASE_ERR + 1000, NO_MODULES };

static struct {
    __typeof__(cuFileDriverOpen) *driver_open;
    __typeof__(cuFileHandleRegister) *handle_register;
    __typeof__(cuFileHandleDeregister) *handle_deregister;
    __typeof__(cuFileRead) *read;
    __typeof__(cuFileWrite) *write;
} cufile;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static int started; /* under the lock */

static int load_library(void) {
    const struct {
        const char *name;
        void *to; /* a pointer to a function */
    } list[] = {
        {"cuFileDriverOpen", &cufile.driver_open},
        {"cuFileHandleRegister", &cufile.handle_register},
        {"cuFileHandleDeregister", &cufile.handle_deregister},
        {"cuFileRead", &cufile.read},
        {"cuFileWrite", &cufile.write},
    };
    void *library = dlopen(CUFILE_PATH, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) return NO_LIBRARY;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        void *found = dlsym(library, list[i].name);
        if (!found) return NO_LIBRARY;
        memcpy(list[i].to, &found, sizeof found);
    }
    return 0;
}

static int start(void) {
    if (access(CUFILE_MODULES, R_OK)) return NO_MODULES;
    int code = load_library();
    if (code) return code;
    CUfileError_t status = cufile.driver_open();
    return status.err == CU_FILE_DRIVER_ALREADY_OPEN ? 0 : (int)status.err;
}

static int ready(void *ctx) {
    int code = device_cuda_enter(ctx);
    if (code) return code;
    pthread_mutex_lock(&starting);
    if (!started) code = start();
    started = !code;
    pthread_mutex_unlock(&starting);
    return code;
}

static int open_file(void *ctx, int fd, void **file) {
    CUfileDescr_t descr = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd};
    int code = device_cuda_enter(ctx);
    return code ? code : (int)cufile.handle_register(file, &descr).err;
}

static void close_file(void *ctx, void *file) {
    if (!device_cuda_enter(ctx)) cufile.handle_deregister(file);
}

/* All of it, in as many calls as that takes. */
static int move(void *ctx, void *file, int writing, void *base, uint64_t at, uint64_t bytes,
                uint64_t offset) {
    int code = device_cuda_enter(ctx);
    for (uint64_t done = 0; done < bytes && !code;) {
        off_t from = (off_t)(offset + done), in_memory = (off_t)(at + done);
        errno = EIO;
        ssize_t n = writing ? cufile.write(file, base, bytes - done, from, in_memory)
                            : cufile.read(file, base, bytes - done, from, in_memory);
        if (n > 0)
            done += (uint64_t)n;
        else if (n < -1)
            code = (int)-n; /* cuFile's */
        else if (!n || errno != EINTR)
            code = n ? -errno : -EIO;
    }
    return code;
}

static int read_file(void *ctx, void *file, void *base, uint64_t at, uint64_t bytes,
                     uint64_t offset) {
    return move(ctx, file, 0, base, at, bytes, offset);
}

static int write_file(void *ctx, void *file, const void *base, uint64_t at, uint64_t bytes,
                      uint64_t offset) {
    return move(ctx, file, 1, (void *)base, at, bytes, offset);
}

const dcp_device_files *cufile_files(void) {
    static const dcp_device_files files = {ready, open_file, close_file, read_file, write_file};
    return &files;
}

const char *cufile_error_text(int code) {
    if (code == NO_LIBRARY) return "libcufile.so.0 cannot be loaded";
    if (code == NO_MODULES) return "cuFile needs " CUFILE_MODULES ", which is not there";
    return IS_CUFILE_ERR(code) ? CUFILE_ERRSTR(code) : NULL;
}
