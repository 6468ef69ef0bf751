/* A system clock that jumps, a disk that is full or slow: put before the C library (LD_PRELOAD), for one process and its
   children. What is to happen is in a file named by FAKE_SYSTEM, as struct state, that the test changes at any time.
   Files that don't end in .arrow are written as ever; the monotonic clock goes as ever. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct state {
    double clock_offset; /* s, added to the system clock */
    double free_bytes;   /* room on every disk; negative: as it is */
    double write_delay;  /* s, for each write to a log */
    int64_t full;        /* not 0: a write to a log fails with ENOSPC */
};

static struct state none = {0.0, -1.0, 0.0, 0}, *state = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_statvfs)(const char *, struct statvfs *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAKE_SYSTEM");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_write = dlsym(RTLD_NEXT, "write");
    real_statvfs = dlsym(RTLD_NEXT, "statvfs");
    if (file < 0)
        return;
    void *memory = mmap(NULL, sizeof *state, PROT_READ, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED)
        state = memory;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = real_clock_gettime(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += (time_t)state->clock_offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec fine;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (now)
        *now = fine.tv_sec;
    return fine.tv_sec;
}

static int is_log(int file)
{
    char link[32] = "/proc/self/fd/", path[4096], digits[12];
    int place = 0, number = file;
    do
        digits[place++] = (char)('0' + number % 10);
    while (number /= 10);
    size_t end = strlen(link);
    while (place)
        link[end++] = digits[--place];
    ssize_t length = readlink(link, path, sizeof path);
    return length > 6 && memcmp(path + length - 6, ".arrow", 6) == 0;
}

ssize_t write(int file, const void *data, size_t size)
{
    if ((state->full || state->write_delay > 0.0) && file > 2 && is_log(file)) {
        struct timespec delay = {(time_t)state->write_delay, (long)(state->write_delay * 1e9) % 1000000000};
        nanosleep(&delay, NULL);
        if (state->full) {
            errno = ENOSPC;
            return -1;
        }
    }
    return real_write(file, data, size);
}

int statvfs(const char *path, struct statvfs *disk)
{
    int result = real_statvfs(path, disk);
    if (result == 0 && state->free_bytes >= 0.0)
        disk->f_bavail = disk->f_bfree = (fsblkcnt_t)(state->free_bytes / (double)disk->f_frsize);
    return result;
}

int statvfs64(const char *path, struct statvfs64 *disk)
{
    return statvfs(path, (struct statvfs *)disk); /* the same on x86-64 */
}
