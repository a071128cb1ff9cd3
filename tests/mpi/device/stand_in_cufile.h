/* cuFile without a GPU: a library of its functions over positioned reads and writes of a stand-in
 * device's memory (stand_in.h). It ends a program that uses a file without a handle, on a thread
 * that has not made the device its own, with unaligned offsets or sizes, or with memory that is not
 * the device's; does some calls in part; and fails when it is told to. */
#ifndef TESTS_MPI_STAND_IN_CUFILE_H
#define TESTS_MPI_STAND_IN_CUFILE_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct stand_in_cufile {
    const unsigned char *memory; /* the device's; the pages behind it */
    unsigned char *behind;
    uint64_t room;
    atomic_int opened, handles;          /* driver; files now */
    atomic_uint_least64_t read, written; /* bytes */
    int driver_fails, register_fails;    /* codes; 0: they do not */
    atomic_int fails_in; /* so many transfers more succeed, the next fails; < 0: none */
    int fails_with;      /* cuFile's code, or -errno */
    atomic_int flips_in; /* the same: one byte is another */
} stand_in_cufile;

#pragma GCC visibility push(default)
extern stand_in_cufile stand_in_gds;
extern _Thread_local int stand_in_entered; /* the thread has made the device its own */
#pragma GCC visibility pop

#endif
