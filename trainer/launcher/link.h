/* dcp-run's end of the connection to an agent. */
#pragma once

#include "launcher/agent/channel.h"

typedef enum launcher_link_state {
    LAUNCHER_LINK_NEW, /* connected, has not said who it is */
    LAUNCHER_LINK_UP,
    LAUNCHER_LINK_CLEAR, /* nothing of the job is left on its host */
    LAUNCHER_LINK_LOST   /* not known what lives there */
} launcher_link_state;

typedef struct launcher_link {
    launcher_channel channel;
    launcher_link_state state;
    const char *host;   /* as the placement names it; NULL: not known yet */
    int is_remote;      /* heartbeats are exchanged */
    int is_told;        /* as lost */
    double heard, said; /* when */
} launcher_link;

void launcher_link_open(launcher_link *link, int fd, int is_remote);
void launcher_link_close(launcher_link *link);
/* Sends `message`, which is freed. */
void launcher_link_send(launcher_link *link, json_t *message);
/* Sends a heartbeat where one is due, and what could not be sent before. */
void launcher_link_keep(launcher_link *link);
/* The next message; NULL: none now. A link whose agent is gone, or silent for the lease, becomes
 * lost, unless it was clear. */
json_t *launcher_link_next(launcher_link *link);
/* Until when what a lost agent has started may live, by program_now_s: it ends that itself once it
 * has heard nothing for the lease. */
double launcher_link_safe_at(const launcher_link *link);
