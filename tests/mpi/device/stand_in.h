/* A device without a GPU, which does everything as late as it may: copies and checksums happen when
 * their event is waited for, and until then the page-locked memory that they write to holds other
 * bytes. The CPU can't touch its memory: who reads or writes it but by a copy is killed (SIGSEGV).
 * Who uses a buffer before its event, or fills it again before that, gets wrong bytes. */
#ifndef TESTS_MPI_STAND_IN_H
#define TESTS_MPI_STAND_IN_H

#include "dcp/device.h"

typedef enum stand_in_call {
    STAND_IN_ALLOC,
    STAND_IN_OPEN,
    STAND_IN_FOLLOW,
    STAND_IN_TO_HOST,
    STAND_IN_TO_DEVICE,
    STAND_IN_CHECKSUM,
    STAND_IN_RECORD,
    STAND_IN_WAIT,
    STAND_IN_CALLS
} stand_in_call;

typedef struct stand_in {
    dcp_device device;
    unsigned char *memory; /* no access: what the caller passes around as device memory */
    unsigned char *behind; /* the same pages for the test and the copies */
    uint64_t room, used;
    void *program; /* what the program has launched and `follow` has not met yet */
    uint64_t calls[STAND_IN_CALLS];
    int64_t fails_in[STAND_IN_CALLS]; /* that many calls more succeed, the next fails; < 0: none */
    int64_t flips_in;                 /* that many copies more are right, the next is not */
    uint64_t pinned, pinned_most;     /* bytes of page-locked memory, now and at most */
    unsigned streams;                 /* open ones */
    int using_pinned;                 /* copies and sums that are still to be done */
} stand_in;

void stand_in_make(stand_in *d, uint64_t room);
/* Nothing may be open or allocated any more. */
void stand_in_free(stand_in *d);

/* Device memory; given back all at once by stand_in_clear. `odd` more than a multiple of 256. */
void *stand_in_alloc(stand_in *d, uint64_t bytes, unsigned odd);
void stand_in_clear(stand_in *d);
/* Where the test sees that memory. */
unsigned char *stand_in_see(const stand_in *d, const void *memory);

/* The program writes to device memory; nobody sees it before a stream follows the program. The
 * bytes are copied. */
void stand_in_launch(stand_in *d, void *memory, const void *bytes, uint64_t n);

/* A call that is to fail, and what the library says of that. */
typedef struct stand_in_failure {
    stand_in_call call; /* STAND_IN_CALLS: none fails, a copied byte is wrong */
    int64_t after;      /* so many right ones */
    int status;
    const char *text; /* in the message */
} stand_in_failure;

void stand_in_fail(stand_in *d, const stand_in_failure *how);
/* No failures any more. */
void stand_in_mend(stand_in *d);

#endif
