/* Threads may use separate objects at the same time: two of them save in a loop. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dcp/dcp.h"
#include "store/directory.h"

#include <fcntl.h>

enum { SAVES = 10, TENSORS = 40 };

static int save_all(dcp_comm *comm, dcp_state *state, const char *dir) {
    dcp_store *store = NULL;
    int status = dcp_store_open(comm, dir, NULL, &store, NULL);
    for (int i = 0; i < TENSORS && !status; i++) {
        char path[32];
        static float value[4];
        snprintf(path, sizeof path, "/model/layer.%d", i);
        dcp_tensor t = {path, DCP_F32, 1, {4}};
        status = dcp_state_add(state, &t, NULL, value, NULL);
        /* a state that grows is laid out again at each save */
        if (!status && i % (TENSORS / SAVES) == 0)
            status = dcp_save(store, (uint64_t)i + 1, state, NULL, NULL, NULL, NULL);
    }
    dcp_store_close(store);
    return status;
}

static void *run(void *dir) {
    dcp_comm *comm = NULL;
    dcp_state *state = NULL;
    int status = dcp_comm_self(&comm, NULL);
    if (!status) status = dcp_state_create(&state, NULL);
    if (!status) status = save_all(comm, state, dir);
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
    return status ? dir : NULL;
}

int main(void) {
    char root[] = "/tmp/dcp-threads-XXXXXX", dirs[2][64];
    pthread_t threads[2];
    void *failed[2] = {root, root};
    if (!mkdtemp(root)) return 1;
    for (int i = 0; i < 2; i++) {
        snprintf(dirs[i], sizeof dirs[i], "%s/%d", root, i);
        if (pthread_create(&threads[i], NULL, run, dirs[i])) return 1;
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &failed[i]);
    store_directory_remove(AT_FDCWD, root);
    if (failed[0] || failed[1]) puts("a save failed");
    return failed[0] || failed[1];
}
