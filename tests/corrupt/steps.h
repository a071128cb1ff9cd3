/* Two steps of the tiny state to damage, one in each layout, below a folder in /tmp: a group's
 * set-up and tear-down for cmocka. */
#ifndef TESTS_STEPS_H
#define TESTS_STEPS_H

#include "damage.h"
#include "tiny.h"

static char root[] = "/tmp/dcp-corrupt-XXXXXX";
static char global[128], sharded[128]; /* the steps' folders */

static inline int make_steps(void **state) {
    (void)state;
    dcp_comm *comm;
    char dir[64];
    if (!mkdtemp(root) || dcp_comm_self(&comm, NULL)) return -1;
    snprintf(dir, sizeof dir, "%s/g", root);
    snprintf(global, sizeof global, "%s/step-00000003", dir);
    int status = tiny_save(comm, dir, 3, DCP_LAYOUT_GLOBAL, NULL);
    snprintf(dir, sizeof dir, "%s/s", root);
    snprintf(sharded, sizeof sharded, "%s/step-00000003", dir);
    if (!status) status = tiny_save(comm, dir, 3, DCP_LAYOUT_SHARDED, NULL);
    dcp_comm_destroy(comm);
    return status;
}

static inline int remove_steps(void **state) {
    (void)state;
    remove_folder_tree(root);
    return 0;
}

#endif
