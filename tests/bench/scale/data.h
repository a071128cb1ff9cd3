/* The data of a simulation cost nothing: requests to files are counted and not made, bytes of boxes
 * are neither copied nor summed. Tables of a file are written, so that it can be opened. The
 * library's functions that do it are replaced here (--wrap). */
#ifndef TESTS_BENCH_SCALE_DATA_H
#define TESTS_BENCH_SCALE_DATA_H

#include <stddef.h>
#include <stdint.h>

struct crowd;

/* Addresses that stand for data: of boxes, of the queues' buffers, of memory that ranks share. */
void data_make(void);
/* Of a box. */
void *data_box(void);
/* So many more bytes that ranks of a host share. */
unsigned char *data_shared(size_t bytes);
int data_is_shared(const void *memory);

/* The whole pages among those bytes become zeros that take no memory. */
void data_drop_pages(void *memory, size_t bytes);

#endif
