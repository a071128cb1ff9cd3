/* Prints a program in Fortran that compares the module's constants and its dcp_error with C's. */
#include <stddef.h>
#include <stdio.h>

#include <dcp/dcp.h>

#define COMPARE(name, value, text) printf("if (" #name " /= %d) error stop '" #name "'\n", value);
#define PLACE(member)                                                                              \
    printf("if (loc(err%%" #member ") - loc(err) /= %zu) error stop 'dcp_error: " #member "'\n",   \
           offsetof(dcp_error, member));

int main(void) {
    printf("use dcp\nuse iso_c_binding\ntype(dcp_error), target :: err\n"
           "type(dcp_state) :: state\ninteger(c_int8_t), target :: byte\n");
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
    printf("if (c_sizeof(err) /= %zu) error stop 'dcp_error'\n", sizeof(dcp_error));
    puts("call dcp_state_create(state)\n"
         "call dcp_state_add_array(state, '/m/a', 'F8_E4M3FNUZ', [1_c_int64_t], c_loc(byte), "
         "err=err)\n"
         "if (err%status /= DCP_ERR_UNSUPPORTED .or. index(dcp_error_text(err), 'FNUZ') == 0) &\n"
         "    error stop 'a type that is left out'\ncall dcp_state_destroy(state)\nend");
    return 0;
}
