/* A step of a private store is being replaced on several nodes when ranks are killed: once nodes
 * have taken different renames, again while names are given back, and after nodes were added. The
 * next start has the old step on all nodes that had it. Ranks are processes, each on its own node.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dcp/dcp.h"
#include "support/ranks.h"

#define NAME "step-00000007"

enum { STEP = 7, ELEMENTS = 8, PATIENCE_MS = 2000 };

/* The moments at which a rank is killed. */
typedef enum moment { NEVER, AT_NAME, AT_MOVE } moment;

/* What all processes see. */
typedef struct flags {
    atomic_int renamed;    /* nodes on which the new step has its name */
    atomic_int given_back; /* nodes on which the old step has its name again */
} flags;

/* One start of the program. */
typedef struct start {
    int saves; /* the elements' value; 0: loads, and expects all elements to be 1 */
    int killed;
    moment when;
    int others; /* how many nodes rename first */
} start;

static char root[] = "/tmp/dcp-replaced-XXXXXX";
static flags *seen;
static moment dies;
static int others;

/* Replaces the C library's function. */
int renameat(int a, const char *from, int b, const char *to) {
    const int names = !strncmp(from, ".tmp-", 5) && !strcmp(to, NAME);
    const int moves = !strcmp(from, NAME) && strstr(to, "/old-");
    if (names && dies == AT_NAME) {
        while (seen->renamed < others) usleep(1000);
        raise(SIGKILL);
    }
    if (moves && dies == AT_MOVE) { /* other nodes must wait for this move */
        for (int i = 0; i < PATIENCE_MS && !seen->given_back; i++) usleep(1000);
        raise(SIGKILL);
    }
    const int result = (int)syscall(SYS_renameat2, a, from, b, to, 0);
    if (names && !result) seen->renamed++;
    if (!strcmp(to, NAME) && !strncmp(from, ".trash-", 7) && !result) seen->given_back++;
    return result;
}

static void succeeds(int status, const char *what, const dcp_error *err) {
    if (!status) return;
    fprintf(stderr, "replaced_on_nodes.c: %s: %s\n", what, err->message);
    exit(1);
}

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "replaced_on_nodes.c: not true: %s\n", what);
    exit(1);
}

static void run_rank(int rank, dcp_comm *comm, void *ctx) {
    const start *s = ctx;
    const int n = dcp_comm_size(comm);
    const dcp_tensor w = {"/model/w", DCP_F32, 1, {ELEMENTS}};
    const dcp_box mine = dcp_box_chunk(&w, rank, n);
    dcp_store_options options = DCP_STORE_OPTIONS_INIT;
    dcp_save_options how = DCP_SAVE_OPTIONS_INIT;
    dcp_error err = {0};
    dcp_state *state = NULL;
    dcp_store *store = NULL;
    dcp_checkpoint *ckpt = NULL;
    float memory[ELEMENTS];
    char dir[64];
    dies = rank == s->killed ? s->when : NEVER;
    others = s->others;
    for (int i = 0; i < ELEMENTS; i++) memory[i] = (float)s->saves;
    snprintf(dir, sizeof dir, "%s/node-%d", root, rank);
    options.private_dirs = options.replace = 1;
    how.layout = DCP_LAYOUT_SHARDED;
    succeeds(dcp_state_create(&state, &err), "state", &err);
    succeeds(dcp_state_add(state, &w, &mine, memory, &err), "tensor", &err);
    succeeds(dcp_store_open(comm, dir, &options, &store, &err), "open", &err);
    if (s->saves)
        succeeds(dcp_save(store, STEP, state, "{}", &how, NULL, &err), "save", &err);
    else {
        succeeds(dcp_checkpoint_open_private(comm, dir, &ckpt, &err), "open the step", &err);
        succeeds(dcp_load(ckpt, state, NULL, &err), "load", &err);
        dcp_checkpoint_close(ckpt);
        for (uint64_t i = 0; i < mine.count[0]; i++) check(memory[i] == 1, "old elements");
    }
    dcp_store_close(store);
    dcp_state_destroy(state);
}

/* Returns 1 if a rank was killed. */
static int run(int ranks_now, start s) {
    ranks *r = ranks_make(ranks_now, sizeof *seen);
    seen = ranks_shared(r);
    const int killed = ranks_run_processes(r, run_rank, &s);
    check(killed == (s.when != NEVER), "a rank is killed, or none");
    check(!s.when || s.when == AT_NAME || !seen->given_back,
          "no old step has its name while a node has the new one");
    ranks_free(r);
    return killed;
}

static void begin(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s/node-*", root);
    check(system(command) == 0, "the nodes are removed");
}

static int is_there(int node, const char *name) {
    char path[96];
    struct stat st;
    snprintf(path, sizeof path, "%s/node-%d/%s", root, node, name);
    return stat(path, &st) == 0;
}

/* Nodes 0 and 1 have an old step, node 2 has none. A node is killed before it has the new step. */
static void nodes_were_added(int killed) {
    begin();
    run(2, (start){.saves = 1});
    run(3, (start){.saves = 2, .killed = killed, .when = AT_NAME, .others = 2});
    run(3, (start){.saves = 0});
    for (int node = 0; node < 3; node++) {
        check(is_there(node, NAME) == (node < 2), "the step is where it was");
        check(!is_there(node, ".abandoned-" NAME), "no step is set aside");
    }
}

static void killed_twice(void) {
    begin();
    run(2, (start){.saves = 1});
    run(2, (start){.saves = 2, .killed = 0, .when = AT_NAME, .others = 1});
    run(2, (start){.saves = 0, .killed = 1, .when = AT_MOVE});
    run(2, (start){.saves = 0});
}

int main(void) {
    check(mkdtemp(root) != NULL, "a folder");
    nodes_were_added(0);
    nodes_were_added(2);
    killed_twice();
    begin();
    check(rmdir(root) == 0, "the folder is removed");
    return 0;
}
