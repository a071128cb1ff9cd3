/* Defines stdin, stdout and stderr as hidden variables of this library, with the values of the C
 * library's variables. The archives of HDF5 and jansson are compiled for programs, so their code
 * can use only variables of the library that contains it. These three are the only variables of
 * another library that it uses. */
#include <dlfcn.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void *own_stdin __asm__("stdin");
HIDDEN void *own_stdout __asm__("stdout");
HIDDEN void *own_stderr __asm__("stderr");

static void *value_of(const char *name) {
    void **variable = dlsym(RTLD_DEFAULT, name);
    return variable ? *variable : (void *)0;
}

__attribute__((constructor)) static void find_streams(void) {
    own_stdin = value_of("stdin");
    own_stdout = value_of("stdout");
    own_stderr = value_of("stderr");
}
