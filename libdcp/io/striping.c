/* The calls to Lustre follow its operations manual ("Managing File Layout") and its public header
 * lustre/include/uapi/linux/lustre/lustre_user.h (struct lov_user_md_v1). A file that is opened
 * with O_LOV_DELAY_CREATE gets no objects until the ioctl LL_IOC_LOV_SETSTRIPE. ROMIO does the same
 * (ad_lustre_open.c). This code has not been run on Lustre yet. */
#include "io/striping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/fail.h"
#include "io/file.h"
#include "io/queue.h"

#define LUSTRE_TYPE 0x0BD00BD0                           /* LL_SUPER_MAGIC, statfs' f_type */
#define SET_LAYOUT _IOW('f', 154, long)                  /* LL_IOC_LOV_SETSTRIPE */
#define WITHOUT_OBJECTS (0100000000 | O_NOCTTY | FASYNC) /* O_LOV_DELAY_CREATE, both values */
#define MAGIC 0x0BD10BD0u                                /* LOV_USER_MAGIC_V1 */
#define PATTERN 0u                                       /* the default: RAID 0 */
#define ANY_SERVER 0xffffu                               /* lmm_stripe_offset: any server */
#define ALL_SERVERS 0xffffu                              /* LOV_ALL_STRIPES */
#define LEAST_BYTES 65536u                               /* LOV_MIN_STRIPE_SIZE, also the unit */
#define MOST_SERVERS 2000                                /* LOV_MAX_STRIPE_COUNT */

bool io_striping_is_requested(const io_striping *asked) { return asked->count || asked->bytes; }

int io_striping_check(const io_striping *asked, dcp_error *err) {
    if (asked->count < IO_STRIPING_ALL || asked->count > MOST_SERVERS)
        return core_fail(err, DCP_ERR_ARG,
                         "stripe_count: %lld is not possible: it must be from 1 to %d object "
                         "servers, or -1 for all",
                         (long long)asked->count, MOST_SERVERS);
    if (asked->bytes % LEAST_BYTES || asked->bytes > UINT32_MAX)
        return core_fail(
            err, DCP_ERR_ARG,
            "stripe_bytes: %llu is not possible: it must be a multiple of 65536 below 4294967296",
            (unsigned long long)asked->bytes);
    return DCP_OK;
}

bool io_striping_is_possible(const char *folder) {
    struct statfs fs;
    return statfs(folder, &fs) == 0 && fs.f_type == LUSTRE_TYPE;
}

/* Returns true if somebody has set a layout for the folder's files (lfs setstripe). */
static bool has_own_layout(const char *folder) {
    return getxattr(folder, "lustre.lov", NULL, 0) > 0;
}

bool io_striping_choose(const io_striping *asked, const char *folder, uint64_t file_bytes,
                        uint64_t writers, io_striping *out) {
    *out = *asked;
    if (!io_striping_is_requested(asked) && has_own_layout(folder)) return false;
    if (!out->bytes) out->bytes = IO_SLOT_BYTES;
    if (out->count) return true;
    uint64_t count = (file_bytes + out->bytes - 1) / out->bytes;
    if (count > writers) count = writers;
    if (count > MOST_SERVERS) count = MOST_SERVERS;
    out->count = count ? (int64_t)count : 1;
    return true;
}

/* The encoding uses the host's byte order. Lustre fills in bytes 8 to 23, lmm_oi. */
void io_striping_encode(const io_striping *layout, unsigned char out[IO_STRIPING_LAYOUT_BYTES]) {
    const uint32_t magic = MAGIC, pattern = PATTERN, bytes = (uint32_t)layout->bytes;
    const uint16_t first = ANY_SERVER,
                   count = layout->count < 0 ? ALL_SERVERS : (uint16_t)layout->count;
    memset(out, 0, IO_STRIPING_LAYOUT_BYTES);
    memcpy(out, &magic, sizeof magic);
    memcpy(out + 4, &pattern, sizeof pattern);
    memcpy(out + 24, &bytes, sizeof bytes);
    memcpy(out + 28, &count, sizeof count);
    memcpy(out + 30, &first, sizeof first);
}

/* The first open must not create the file's objects; the second open creates them according to the
 * layout. So the length is set, and space is reserved, after the second open. */
int io_striping_create(const char *path, uint64_t bytes, const io_striping *layout, int *refused,
                       dcp_error *err) {
    unsigned char asked[IO_STRIPING_LAYOUT_BYTES];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | WITHOUT_OBJECTS, 0666);
    if (fd < 0) return core_fail_errno(err, "create", path);
    io_striping_encode(layout, asked);
    *refused = ioctl(fd, SET_LAYOUT, asked) == 0 ? 0 : errno;
    close(fd);
    io_file file;
    int status = io_open_buffered(path, true, &file, err);
    if (status) return status;
    if (bytes) status = io_reserve(&file, bytes, err);
    io_close(&file);
    return status;
}
