/* Who writes into a store: one process, from an open to the close. */
#pragma once

#include "comm/process.h"
#include "dcp/error.h"

#define STORE_WRITER_ID 17    /* 16 hex digits at random, and a NUL */
#define STORE_WRITER_TEXT 512 /* room for a writer as text */

typedef struct store_writer {
    char host[256]; /* for people */
    comm_process process;
    char id[STORE_WRITER_ID];
    int contested; /* a writer before this one may still be running: see store/lock.h */
    int lockless;  /* and it found no locks that exclude others */
    int has_ended; /* it has closed the store */
} store_writer;

/* A new identity. DCP_ERR_IO: the system gives no random numbers. */
int store_writer_make_id(char id[STORE_WRITER_ID], dcp_error *err);

/* This process, with that identity. */
void store_writer_describe(const char *id, store_writer *out);

/* One line: "host pid start kernel namespace id sole|contested|lockless held|ended pid". The
 * bytes written. A lockless one is contested. */
int store_writer_print(const store_writer *w, char text[STORE_WRITER_TEXT]);

/* 0 where the text is no whole line of that kind; then host and pid alone are filled in, where they
 * are there. */
int store_writer_parse(const char *text, store_writer *out);

typedef enum store_writer_fate {
    STORE_WRITER_GONE,    /* it has closed the store, or its process is dead */
    STORE_WRITER_RUNS,    /* under this kernel, in this namespace of pids */
    STORE_WRITER_UNKNOWN, /* it ran elsewhere */
} store_writer_fate;

store_writer_fate store_writer_find(const store_writer *w);

/* Whether it is this process, under whatever identity. */
int store_writer_is_self(const store_writer *w, const store_writer *self);
