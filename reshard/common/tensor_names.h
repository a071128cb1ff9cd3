/* The names that tensors get in an export or import: without what wrappers of modules put into
 * them, and as --rename asks for. */
#pragma once

#include <stddef.h>

enum { TENSOR_WRAPPERS = 7 }; /* kinds of them */

typedef struct tensor_rename {
    char *from, *to;
    size_t used; /* names of the model that it changed */
} tensor_rename;

typedef struct tensor_names {
    tensor_rename *renames;
    size_t n;
    int unwraps;                       /* names lose what wrappers put there */
    size_t leading;                    /* bytes that begin all names then, and are left away */
    size_t unwrapped[TENSOR_WRAPPERS]; /* names of the model that lost it, by kind */
} tensor_names;

/* Functions return exit statuses, having said what failed. */

/* `text`, or NULL: "FROM=TO", or several with commas between them. */
int tensor_names_parse(const char *text, tensor_names *out);
void tensor_names_free(tensor_names *names);

/* Of the model's n names: where `unwraps` is set, finds what wrappers put into them. */
int tensor_names_find(const char *const *list, size_t n, int unwraps, tensor_names *names);
/* Says what names lose, `where`; refuses a FROM that no name has. */
int tensor_names_tell(const char *where, const tensor_names *names);

/* The new name of a tensor of the model, or of what a moment is of. malloc'd; NULL: out of memory.
 */
char *tensor_names_new(const tensor_names *names, const char *name);
