/* The names that tensors get in an export: without what wrappers of modules put into them, and as
 * --rename asks for. */
#pragma once

#include <stddef.h>

#include <dcp/checkpoint.h>

enum { EXPORT_WRAPPERS = 7 }; /* kinds of them */

typedef struct export_rename {
    char *from, *to;
    size_t used; /* names of the model that it changed */
} export_rename;

typedef struct export_names {
    export_rename *renames;
    size_t n;
    int unwraps;                       /* names lose what wrappers put there */
    size_t leading;                    /* bytes that begin all names then, and are left away */
    size_t unwrapped[EXPORT_WRAPPERS]; /* names of the model that lost it, by kind */
} export_names;

/* Functions return exit statuses, having said what failed. */

/* `text`, or NULL: "FROM=TO", or several with commas between them. */
int export_names_parse(const char *text, export_names *out);
void export_names_free(export_names *names);

/* Where `unwraps` is set, finds what wrappers put into the names of the checkpoint's model. */
int export_names_find(const dcp_checkpoint *ckpt, int unwraps, export_names *names);
/* Says what names lose; refuses a FROM that no name has. */
int export_names_tell(const dcp_checkpoint *ckpt, const export_names *names);

/* The new name of a tensor: of what stands behind "/model/", or behind the moment of a parameter.
 * malloc'd; NULL: out of memory. */
char *export_names_new(const export_names *names, const char *name);
