/* A server's disk, filled by a test. Preloaded (LD_PRELOAD), it refuses what would need more room: ENOSPC.

   LEASEHOLD_DISK   path of a file of one byte: not 0 means that the disk is full.

   As on a real disk, what is already in a file can be overwritten. Standard output and standard error are never full:
   they are the log that the test reads. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic char *full;

__attribute__((constructor)) static void open_the_file(void) {
    const char *path = getenv("LEASEHOLD_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) abort(); /* a disk that is never full, where the test fills one, would be a lie */
    full = page;
    close(file);
}

static int no_room(int file, int64_t end) {
    struct stat found;
    if (!full || !atomic_load(full) || file <= STDERR_FILENO) return 0;
    if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || end <= found.st_size) return 0;
    errno = ENOSPC;
    return 1;
}

static int64_t place(int file) {
    struct stat found;
    int flags = fcntl(file, F_GETFL);
    if (flags >= 0 && flags & O_APPEND) return fstat(file, &found) == 0 ? found.st_size : 0;
    return lseek(file, 0, SEEK_CUR);
}

static int64_t length(const struct iovec *parts, int count) {
    int64_t sum = 0;
    for (int i = 0; i < count; i++) sum += (int64_t)parts[i].iov_len;
    return sum;
}

ssize_t write(int file, const void *bytes, size_t count) {
    if (full && atomic_load(full) && no_room(file, place(file) + (int64_t)count)) return -1;
    return syscall(SYS_write, file, bytes, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t where) {
    return no_room(file, where + (int64_t)count) ? -1 : syscall(SYS_pwrite64, file, bytes, count, where);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t where) {
    if (no_room(file, where + length(parts, count))) return -1;
    return syscall(SYS_pwritev, file, parts, (long)count, (long)where, 0L);
}

int posix_fallocate64(int file, off64_t where, off64_t count) {
    if (no_room(file, where + count)) return ENOSPC;
    return syscall(SYS_fallocate, file, 0, where, count) == 0 ? 0 : errno;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t where) __attribute__((alias("pwrite64")));
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t where) __attribute__((alias("pwritev64")));
int posix_fallocate(int file, off_t where, off_t count) __attribute__((alias("posix_fallocate64")));
