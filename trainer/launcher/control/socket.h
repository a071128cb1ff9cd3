/* The Unix socket at which a supervisor (dcp-run) accepts requests. Its place is given as a path.
 * If the path is too long for a socket, or the file system may be shared with other hosts, the
 * socket is made elsewhere, and a file at the path names the host, the pid and the socket. The lock
 * on that file shows, on other hosts as well, whether the supervisor is alive. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
    LAUNCHER_SOCKET_WHY = 1024, /* bytes of a message */
    LAUNCHER_SOCKET_AT = sizeof(((struct sockaddr_un *)0)->sun_path)
};

typedef struct launcher_socket {
    char *path;                  /* as given */
    char at[LAUNCHER_SOCKET_AT]; /* the path of the socket: `path`, or another one */
    int fd;                      /* listens; non-blocking */
    int file;                    /* at `path`, locked; -1: the socket itself is at `path` */
    dev_t device;                /* of the file or socket made at `path` */
    ino_t inode;
} launcher_socket;

typedef enum launcher_listening {
    LAUNCHER_LISTENS,
    LAUNCHER_OCCUPIED, /* another supervisor is at `path`, or something that must not be replaced */
    LAUNCHER_UNREACHABLE /* the socket cannot be made */
} launcher_listening;

/* Listens at `path`, and replaces what a killed supervisor has left there. If several processes try
 * at the same time, one of them succeeds. On failure, fills in `why`. */
launcher_listening launcher_socket_listen(launcher_socket *out, const char *path,
                                          char why[LAUNCHER_SOCKET_WHY]);

/* Closes the socket, and removes what this process has made if it is still in place. */
void launcher_socket_close(launcher_socket *socket);

/* Closes only the descriptors: for a child of the process that listens. */
void launcher_socket_close_in_child(launcher_socket *socket);

/* Connects to the supervisor at `path`, or at `.control` in `path` if that is a directory. Returns
 * the descriptor, or -1 after filling in `why`. */
int launcher_socket_connect(const char *path, char why[LAUNCHER_SOCKET_WHY]);

/* Returns true if the other end of a connection is a process of this user or of root. */
bool launcher_socket_is_of_owner(int fd);
