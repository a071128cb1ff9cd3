/* What about.json of a rewritten step says beside who rewrote it. */
#ifndef RESHARD_ABOUT_H
#define RESHARD_ABOUT_H

/* The kernels and the processor that computed the step in that folder, where its about.json names
 * them, and `mesh` unless it is NULL: a JSON object, malloc'd. NULL: out of memory. */
char *reshard_about(const char *step, const char *mesh);

#endif
