/* A server's wall clock, turned by a test. Preloaded (LD_PRELOAD), it answers with what stands in a file.

   LEASEHOLD_CLOCK   path of the file: two int64. Microseconds since 1970, at which time stands still until the test
                     writes another value; 0 means that it runs. Then by how many microseconds it differs from the real
                     time.

   Monotonic clocks stay real: the event loop lives on them.
   The kernel is asked directly, because dlsym() may allocate memory, and an allocator may ask for the time. */

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t *shown;

__attribute__((constructor)) static void open_the_file(void) {
    const char *path = getenv("LEASEHOLD_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = mmap(NULL, 2 * sizeof *shown, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) abort(); /* a real clock, where the test turns one, would be a lie */
    shown = page;
    close(file);
}

static int64_t turned(void) {
    return shown ? atomic_load(shown) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *result) {
    int wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int64_t us = wall ? turned() : 0;
    if (us == 0) {
        int status = (int)syscall(SYS_clock_gettime, clock, result);
        int64_t off = wall && shown ? atomic_load(shown + 1) : 0;
        if (status != 0 || off == 0) return status;
        us = (int64_t)result->tv_sec * 1000000 + result->tv_nsec / 1000 + off;
    }
    result->tv_sec = us / 1000000;
    result->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    *result = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    if (zone) memset(zone, 0, sizeof(struct timezone));
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0) return -1;
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

/* Valkey 9.1 asks for the wall clock once a millisecond, and adds what the processor's counter says in between. It
   looks here whether that counter is steady. When it finds nothing, it asks for the wall clock each time. */
FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return fopen(strcmp(path, "/proc/cpuinfo") == 0 ? "/dev/null" : path, mode);
}
