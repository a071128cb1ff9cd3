/* A device without a GPU that does everything as late as permitted: copies and checksums happen
 * when their event is waited for, and until then the page-locked memory that they write to holds
 * other bytes. The CPU cannot access its memory: reading or writing it except by a copy is a
 * SIGSEGV. Using a buffer before its event, or filling it again before that, gives wrong bytes. */
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
    unsigned char *memory; /* not accessible: what the caller passes around as device memory */
    unsigned char *behind; /* the same pages for the test and the copies */
    uint64_t room, used;
    void *program; /* what the program has launched and `follow` has not seen yet */
    uint64_t calls[STAND_IN_CALLS];
    int64_t fails_in[STAND_IN_CALLS]; /* so many calls succeed, the next fails; < 0: none fails */
    int64_t flips_in;                 /* the number of copies that are right before one is not */
    uint64_t pinned, pinned_most;     /* bytes of page-locked memory, now and at most */
    unsigned streams;                 /* open ones */
    int using_pinned;                 /* copies and sums that are still to be done */
} stand_in;

void stand_in_make(stand_in *d, uint64_t room);
/* Requires that nothing is open or allocated any more. */
void stand_in_free(stand_in *d);

/* Device memory; stand_in_clear frees all of it at once. odd: the offset from a multiple of 256. */
void *stand_in_alloc(stand_in *d, uint64_t bytes, unsigned odd);
void stand_in_clear(stand_in *d);
/* The address at which the test sees that memory. */
unsigned char *stand_in_see(const stand_in *d, const void *memory);

/* The program writes to device memory; the write is visible only after a stream follows the
 * program. The bytes are copied. */
void stand_in_launch(stand_in *d, void *memory, const void *bytes, uint64_t n);

/* A call that is to fail, and how the library reports that. */
typedef struct stand_in_failure {
    stand_in_call call; /* STAND_IN_CALLS: none fails, a copied byte is wrong */
    int64_t after;      /* the number of successful calls before */
    int status;
    const char *text; /* in the message */
} stand_in_failure;

void stand_in_fail(stand_in *d, const stand_in_failure *how);
/* Ends all failures. */
void stand_in_mend(stand_in *d);

#endif
