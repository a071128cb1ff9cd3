#include "launcher/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 512 };

/* Of both families where there is IPv6, else of IPv4. */
static int open_socket(int family) {
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int off = 0;
    const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    const struct sockaddr_in any4 = {.sin_family = AF_INET};
    if (fd < 0) return -1;
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const int failed = family == AF_INET6 ? bind(fd, (const void *)&any6, sizeof any6)
                                          : bind(fd, (const void *)&any4, sizeof any4);
    if (!failed && listen(fd, BACKLOG) == 0) return fd;
    close(fd);
    return -1;
}

static int port_of(int fd) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    if (getsockname(fd, (void *)&name, &size) != 0) return 0;
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

/* Addresses that need no interface to be named with them. */
static int is_for_others(const struct ifaddrs *at) {
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK)) return 0;
    if (at->ifa_addr->sa_family == AF_INET) return 1;
    if (at->ifa_addr->sa_family != AF_INET6) return 0;
    return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)at->ifa_addr)->sin6_addr);
}

static void list_addresses(char *out, size_t size) {
    struct ifaddrs *all = NULL;
    size_t n = 0;
    *out = '\0';
    if (getifaddrs(&all) != 0) all = NULL;
    for (int family = 0; family < 2; family++) { /* IPv4 first */
        for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
            char text[INET6_ADDRSTRLEN];
            if (!is_for_others(at) || (at->ifa_addr->sa_family == AF_INET6) != family) continue;
            const void *address = family ? (void *)&((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr
                                         : (void *)&((struct sockaddr_in *)at->ifa_addr)->sin_addr;
            if (!inet_ntop(at->ifa_addr->sa_family, address, text, sizeof text)) continue;
            if (n + strlen(text) + 2 > size) continue;
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "", text);
        }
    }
    if (all) freeifaddrs(all);
    if (n == 0) snprintf(out, size, "127.0.0.1");
}

static int make_key(char *key, size_t size) {
    uint64_t number[2];
    if (getrandom(number, sizeof number, 0) != sizeof number) return -1;
    snprintf(key, size, "%016" PRIx64 "%016" PRIx64, number[0], number[1]);
    return 0;
}

int launcher_listener_open(launcher_listener *listener) {
    *listener = (launcher_listener){.fd = open_socket(AF_INET6)};
    if (listener->fd < 0) listener->fd = open_socket(AF_INET);
    if (listener->fd < 0 || make_key(listener->key, sizeof listener->key) != 0) {
        fprintf(stderr, "dcp-run: cannot listen for agents of other hosts: %s\n", strerror(errno));
        launcher_listener_close(listener);
        return -1;
    }
    listener->port = port_of(listener->fd);
    list_addresses(listener->addresses, sizeof listener->addresses);
    return 0;
}

void launcher_listener_close(launcher_listener *listener) {
    if (listener->fd >= 0) close(listener->fd);
    listener->fd = -1;
}

int launcher_listener_accept(const launcher_listener *listener) {
    if (listener->fd < 0) return -1;
    const int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}
