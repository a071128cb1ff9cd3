#include "setup/open_stores.h"

#include <time.h>

#include "config/config.h"
#include "ranks/agree.h"
#include "ranks/board.h"
#include "ranks/launcher.h"
#include "ranks/say.h"
#include "state/resume.h"
#include "step/signals.h"

/* A store that ranks of an earlier start hold is waited for: they may have been killed a moment
 * ago, with the dcp-run that started them. */
static int open_stores(trainer *t, dcp_error *err) {
    const dcp_tiers_options options = {.size = sizeof options,
                                       .take_over = t->c->takes_over,
                                       .tool = "dcp-train",
                                       .loads_only = 1,
                                       .log = ranks_log,
                                       .on_filled = timeline_add_fill,
                                       .filled_ctx = &t->tl,
                                       .on_fill_progress = ranks_board_on_progress};
    static const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    const double grace = ranks_launcher_grace_s(), until = MPI_Wtime() + grace;
    dcp_error why;
    for (int tries = 1;; tries++) {
        const int status =
            dcp_tiers_open(t->dcp, t->c->stores, t->c->n_stores, &options, &t->stores, &why);
        if (status == DCP_OK) return DCP_OK;
        int again = status == DCP_ERR_BUSY && MPI_Wtime() < until;
        MPI_Bcast(&again, 1, MPI_INT, 0, t->comm);
        if (!again || step_signals_ask_to_stop(t->comm))
            return ranks_agree(t->comm, state_resume_fail_directory(t->c, status, &why, err), err);
        if (tries == 1)
            ranks_say(t->rank, "waiting for up to %g s (dcp-run --grace), since %s", grace,
                      why.message);
        nanosleep(&pause, NULL);
    }
}

/* Also where dcp-run has started fewer ranks, or elsewhere: it need not be what it was. */
static void tell_survived(const trainer *t) {
    for (size_t i = 0; i < t->c->n_stores; i++) {
        const char *path = t->c->stores[i].path;
        const char *domain = t->c->stores[i].domain ? "failure domain" : "host";
        const int losses = dcp_tiers_survives(t->stores, i);
        if (!t->c->stores[i].is_private) continue;
        if (losses > 0)
            ranks_say(t->rank, "steps in %s survive the loss of any %d %s%s", path, losses, domain,
                      losses == 1 ? "" : "s");
        else
            ranks_say(t->rank, "steps in %s are lost with any %s", path, domain);
    }
}

int setup_open_stores(trainer *t, dcp_error *err) {
    const int status = open_stores(t, err);
    if (status == DCP_OK) tell_survived(t);
    return status;
}
