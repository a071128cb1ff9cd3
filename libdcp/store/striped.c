#include "store/striped.h"

#include <string.h>

#include "comm/comm.h"
#include "io/file.h"
#include "io/striping.h"

#define SERVERS_A_HOST 4 /* as many as a host's network keeps busy */

static io_striping asked_of(const dcp_store *store) {
    return (io_striping){store->options.stripe_count, store->options.stripe_bytes};
}

int store_striped_check(const dcp_store *store, dcp_error *err) {
    const io_striping asked = asked_of(store);
    return io_striping_check(&asked, err);
}

void store_striped_tell(const dcp_store *store) {
    const io_striping asked = asked_of(store);
    if (store->comm->rank == 0 && io_striping_is_asked(&asked) &&
        !io_striping_is_possible(store->dir))
        store_log(store, DCP_LOG_INFO,
                  "%s: stripe_count and stripe_bytes are ignored: not on a Lustre file system",
                  store->dir);
}

int store_striped_create(dcp_store *store, const char *path, uint64_t bytes, int hosts,
                         dcp_error *err) {
    const io_striping asked = asked_of(store);
    const uint64_t writers = hosts ? (uint64_t)hosts * SERVERS_A_HOST : 1;
    io_striping layout;
    int refused = 0;
    if (!io_striping_is_possible(store->dir) ||
        !io_striping_choose(&asked, store->dir, bytes, writers, &layout))
        return io_create(path, bytes, err);
    int status = io_striping_create(path, bytes, &layout, &refused, err);
    if (refused && !store->told_of_striping)
        store_log(store, DCP_LOG_WARNING,
                  "%s: Lustre refuses %lld stripes of %llu bytes: %s; files have the directory's "
                  "layout",
                  path, (long long)layout.count, (unsigned long long)layout.bytes,
                  strerror(refused));
    store->told_of_striping |= refused != 0;
    return status;
}
