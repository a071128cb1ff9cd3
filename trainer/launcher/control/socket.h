/* Where a supervisor is reached: a Unix socket, which lies where a path says. Where the path is too
 * long for one, or the file system is not known to be this host's alone, the path is a file that
 * names host, pid and socket; its lock tells, from other hosts as well, whether that supervisor
 * lives. */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
    LAUNCHER_SOCKET_WHY = 1024, /* room for a message */
    LAUNCHER_SOCKET_AT = sizeof(((struct sockaddr_un *)0)->sun_path)
};

typedef struct launcher_socket {
    char *path;                  /* as it was given */
    char at[LAUNCHER_SOCKET_AT]; /* of the socket: `path`, or elsewhere */
    int fd;                      /* listens; does not block */
    int file;                    /* at `path`, locked; -1: the socket is there */
    dev_t device;                /* of what was made at `path` */
    ino_t inode;
} launcher_socket;

typedef enum launcher_listening {
    LAUNCHER_LISTENS,
    LAUNCHER_TAKEN,      /* another supervisor is there, or something that is not ours to replace */
    LAUNCHER_UNREACHABLE /* it cannot be made */
} launcher_listening;

/* Listens; what a killed supervisor has left at `path` is replaced. Of several that try at once one
 * listens. Fills in `why` otherwise. */
launcher_listening launcher_socket_listen(launcher_socket *out, const char *path,
                                          char why[LAUNCHER_SOCKET_WHY]);

/* Removes what is still its own. */
void launcher_socket_close(launcher_socket *socket);

/* Closes the descriptors alone: in a child of the one that listens. */
void launcher_socket_forget(launcher_socket *socket);

/* A connection to the supervisor at `path`, or at `.control` in it where it is a directory; -1
 * after filling in `why`. */
int launcher_socket_connect(const char *path, char why[LAUNCHER_SOCKET_WHY]);

/* Whether the other end of a connection is a process of this user or of root. */
int launcher_socket_is_of_owner(int fd);
