#include "launcher/link.h"

#include "launcher/agent/agent.h"
#include "programs/program.h"

void launcher_link_open(launcher_link *link, int fd, int is_remote) {
    const double now = program_now_s();
    *link = (launcher_link){.is_remote = is_remote, .heard = now, .said = now};
    launcher_channel_open(&link->channel, fd);
}

void launcher_link_close(launcher_link *link) { launcher_channel_close(&link->channel); }

void launcher_link_send(launcher_link *link, json_t *message) {
    link->said = program_now_s();
    launcher_channel_send(&link->channel, message);
}

/* A beat answers what was heard: to a host that has fallen silent nothing is said that would
 * prolong what runs there. */
void launcher_link_keep(launcher_link *link) {
    launcher_channel_flush(&link->channel);
    if (!link->is_remote || link->state != LAUNCHER_LINK_UP || link->heard < link->said) return;
    if (program_now_s() - link->said < LAUNCHER_BEAT_S) return;
    launcher_link_send(link, json_pack("{s:s}", "kind", "beat"));
}

json_t *launcher_link_next(launcher_link *link) {
    launcher_channel_receive(&link->channel);
    json_t *message = launcher_channel_next(&link->channel);
    if (message) {
        link->heard = program_now_s();
        return message;
    }
    const int is_silent = link->is_remote && program_now_s() - link->heard > LAUNCHER_LEASE_S;
    if (link->channel.fd >= 0 && !is_silent) return NULL;
    if (link->state != LAUNCHER_LINK_CLEAR) link->state = LAUNCHER_LINK_LOST;
    launcher_channel_close(&link->channel);
    return NULL;
}

double launcher_link_safe_at(const launcher_link *link) {
    if (link->state != LAUNCHER_LINK_LOST || !link->is_remote) return 0;
    return link->said + LAUNCHER_LEASE_S + 1; /* to kill them */
}
