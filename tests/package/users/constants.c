/* Prints a program in Fortran that compares the module's constants and its dcp_error with C's. */
#include <stddef.h>
#include <stdio.h>

#include <dcp/dcp.h>

#define COMPARE(name, value, text) printf("if (" #name " /= %d) error stop '" #name "'\n", value);
#define PLACE(member)                                                                              \
    printf("if (loc(err%%" #member ") - loc(err) /= %zu) error stop 'dcp_error: " #member "'\n",   \
           offsetof(dcp_error, member));

int main(void) {
    printf("use dcp\nuse iso_c_binding\ntype(dcp_error), target :: err\n");
    DCP_STATUS_LIST(COMPARE)
    COMPARE(DCP_LAYOUT_GLOBAL, DCP_LAYOUT_GLOBAL, )
    COMPARE(DCP_LAYOUT_SHARDED, DCP_LAYOUT_SHARDED, )
    COMPARE(DCP_MAX_DIMS, DCP_MAX_DIMS, )
    PLACE(rank)
    PLACE(message)
    PLACE(ranks)
    PLACE(offset)
    PLACE(tensor)
    PLACE(path)
    printf("if (c_sizeof(err) /= %zu) error stop 'dcp_error'\nend\n", sizeof(dcp_error));
    return 0;
}
