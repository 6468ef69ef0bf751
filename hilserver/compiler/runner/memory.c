/* Shared memory between processes, laid out as in hilserver/realtime (segment.py, queues.py, shared.py).

   The other side relies on the store order of x86-64. */
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the shared memory of hilserver relies on the store order of x86-64"
#endif

enum { LINE = 64, VERSION = 3, MAGIC_AT = 0, VERSION_AT, SIZE_AT, OWNER_AT, SHAPE_AT, PAYLOAD_BYTES = 64 };
static const char MAGIC[8] = {'h', 'i', 'l', 's', 'e', 'r', 'v', 'e'};

static size_t lines(size_t size) { return (size + LINE - 1) / LINE * LINE; }

/* --- segments ----------------------------------------------------------------------------------------------------- */

/* This user's folder in /dev/shm: one in which nobody else can put anything. */
static int own_folder(char *path, size_t size) {
    struct stat status;
    for (int number = 0; number < 1000; number++) {
        if (number == 0) snprintf(path, size, "/dev/shm/hilserver-%d", (int)geteuid());
        else snprintf(path, size, "/dev/shm/hilserver-%d.%d", (int)geteuid(), number);
        if (mkdir(path, 0711) != 0 && errno != EEXIST) return refuse("%s: %s", path, strerror(errno));
        if (lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
            (status.st_mode & 022) == 0)
            return 1;
    }
    return refuse("%s: belongs to another user, as do all others of this name", path);
}

static int path_of(Segment *segment, const char *name) {
    char folder[64];
    if (!own_folder(folder, sizeof folder)) return 0;
    int length = snprintf(segment->path, sizeof segment->path, "%s/%s", folder, name);
    return length < (int)sizeof segment->path || refuse("%s: the name is too long", name);
}

/* Whether an open file is still the one at the segment's path. */
static int is_in_place(const Segment *segment, int file) {
    struct stat there, here;
    return lstat(segment->path, &there) == 0 && fstat(file, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

/* Remove the file of an owner that has died; 0, with a message, if it lives. */
static int remove_stale(const Segment *segment) {
    int file = open(segment->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    int64_t head[OWNER_AT + 1] = {0};
    if (file < 0) return errno == ENOENT || refuse("%s: %s", segment->path, strerror(errno));
    ssize_t got = pread(file, head, sizeof head, 0);
    int is_ours = got >= 0 && (head[MAGIC_AT] == 0 || memcmp(head, MAGIC, sizeof MAGIC) == 0);
    int done = 1;
    if (!is_ours) done = refuse("%s: exists and is not a shared memory of hilserver. Move it away", segment->path);
    else if (flock(file, LOCK_EX | LOCK_NB) != 0)
        done = refuse("%s: in use by process %lld: the rig runs already", segment->path, (long long)head[OWNER_AT]);
    else if (is_in_place(segment, file)) unlink(segment->path);
    close(file);
    return done;
}

static int map(Segment *segment, size_t size) {
    segment->size = size;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, segment->file, 0);
    segment->memory = memory == MAP_FAILED ? NULL : memory;
    return memory != MAP_FAILED;
}

/* A new segment of so many usable bytes, which this process owns. */
int segment_create(Segment *segment, const char *name, size_t size, const int64_t shape[4]) {
    if (!path_of(segment, name)) return 0;
    for (;;) {
        segment->file = open(segment->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (segment->file >= 0 && flock(segment->file, LOCK_EX | LOCK_NB) == 0 && is_in_place(segment, segment->file))
            break;
        if (segment->file < 0 && errno != EEXIST) return refuse("%s: %s", segment->path, strerror(errno));
        if (segment->file >= 0) close(segment->file);
        if (!remove_stale(segment)) return 0;
    }
    int problem = posix_fallocate(segment->file, 0, (off_t)(size + LINE)); /* no crash at the first write */
    if (problem != 0 || !map(segment, size + LINE)) {
        unlink(segment->path);
        close(segment->file);
        return refuse("%s: %zu bytes of shared memory: %s", segment->path, size, strerror(problem ? problem : errno));
    }
    int64_t *head = (int64_t *)segment->memory;
    memcpy(head + SHAPE_AT, shape, 4 * sizeof *shape);
    head[OWNER_AT] = getpid();
    head[SIZE_AT] = (int64_t)segment->size;
    head[VERSION_AT] = VERSION;
    int64_t magic;
    memcpy(&magic, MAGIC, sizeof magic);
    store(&head[MAGIC_AT], magic); /* last: the segment is ready */
    return 1;
}

/* Whether the process that has created a segment has ended: nobody holds the lock then. */
static int is_left_behind(const Segment *segment) {
    int file = open(segment->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int is_free = file >= 0 && flock(file, LOCK_SH | LOCK_NB) == 0;
    if (file >= 0) close(file);
    return is_free;
}

/* Map the segment of another process, which must be alive. */
int segment_attach(Segment *segment, const char *name, int64_t shape[4]) {
    struct stat status;
    if (!path_of(segment, name)) return 0;
    segment->file = open(segment->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (segment->file < 0) return refuse("%s does not run here (%s: %s)", name, segment->path, strerror(errno));
    if (fstat(segment->file, &status) != 0 || status.st_size < LINE || !map(segment, (size_t)status.st_size))
        return refuse("%s: can't be mapped", segment->path);
    const int64_t *head = (const int64_t *)segment->memory;
    if (memcmp(head, MAGIC, sizeof MAGIC) != 0 || head[VERSION_AT] != VERSION || head[SIZE_AT] != status.st_size)
        return refuse("%s: is not a shared memory of this version", segment->path);
    if (is_left_behind(segment)) return refuse("%s does not run here: its process was killed", name);
    memcpy(shape, head + SHAPE_AT, 4 * sizeof *shape);
    return 1;
}

/* Remove the file of a segment that this process has created. */
void segment_close(Segment *segment) {
    if (segment->memory != NULL && is_in_place(segment, segment->file)) unlink(segment->path);
    segment->memory = NULL;
}

/* --- rings -------------------------------------------------------------------------------------------------------- */

size_t ring_size(int64_t width, int64_t capacity) { return LINE + lines((size_t)(CELL * width * capacity)); }

Ring ring_on(char *memory, int64_t width, int64_t capacity) {
    return (Ring){(int64_t *)memory, (double *)(memory + LINE), width, capacity};
}

/* The place of the next row. */
double *ring_slot(const Ring *ring) { return ring->rows + *ring->published % ring->capacity * ring->width; }

/* The row in `ring_slot` is complete. */
void ring_publish(Ring *ring) { store(ring->published, *ring->published + 1); }

/* Copy a row; gives by how many rows it is behind the latest: the copy is good if these are less than the capacity. */
int64_t ring_copy(const Ring *ring, int64_t number, double *row) {
    memcpy(row, ring->rows + number % ring->capacity * ring->width, (size_t)ring->width * CELL);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return load(ring->published) - number;
}

/* Copy the latest row; its number, or -1 if there is none. */
int64_t ring_latest(const Ring *ring, double *row) {
    int64_t number;
    while ((number = load(ring->published) - 1) >= 0 && ring_copy(ring, number, row) >= ring->capacity) {}
    return number;
}

/* --- the memory of the loop --------------------------------------------------------------------------------------- */

static size_t mailbox_size(int64_t slots, int64_t payload) {
    return 2 * LINE + (size_t)slots * 2 * LINE + (size_t)(slots < 64 ? slots : 64) * lines((size_t)payload);
}

static void lay_out(LoopMemory *m, int64_t width, int64_t rows) {
    char *memory = m->segment.memory + LINE;
    m->info = (int64_t *)memory;
    m->supervisor = (int64_t *)(memory + LINE);
    m->heartbeat = (int64_t *)(memory + 2 * LINE);
    m->ring = ring_on(memory + 3 * LINE, width, rows);
    m->mailbox = (int64_t *)(memory + 3 * LINE + ring_size(width, rows));
}

static size_t memory_size(int64_t width) {
    return 3 * LINE + ring_size(width, RING_ROWS) + mailbox_size(MAILBOX_SLOTS, PAYLOAD_BYTES);
}

int memory_create(LoopMemory *m, const char *name, int64_t width) {
    const int64_t shape[4] = {width, RING_ROWS, MAILBOX_SLOTS, PAYLOAD_BYTES};
    if (!segment_create(&m->segment, name, memory_size(width), shape)) return 0;
    lay_out(m, width, RING_ROWS);
    return 1;
}

/* Attach to the loop of a runner with rows of this width. */
int memory_attach(LoopMemory *m, const char *name, int64_t width) {
    int64_t shape[4];
    if (!segment_attach(&m->segment, name, shape)) return 0;
    if (shape[1] != RING_ROWS || shape[2] != MAILBOX_SLOTS || shape[3] != PAYLOAD_BYTES)
        return refuse("%s: is run here by hilserver itself. Use hilserver status, and hilserver send", name);
    if (shape[0] != width || m->segment.size != LINE + memory_size(width))
        return refuse("%s: another release runs here than the one in this folder", name);
    lay_out(m, width, RING_ROWS);
    return 1;
}

enum { POSTED = 0, TAKEN = LINE / CELL };

/* The place of the message with this number, from 0. */
static double *message(const LoopMemory *m, int64_t sequence) {
    return (double *)m->mailbox + (2 + 2 * (sequence % MAILBOX_SLOTS)) * LINE / CELL;
}

/* Copy the message with this number, from 0; 0 if it was overwritten meanwhile. */
int memory_copy(const LoopMemory *m, int64_t sequence, double record[MESSAGE_CELLS]) {
    memcpy(record, message(m, sequence), MESSAGE_CELLS * sizeof *record);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return load(&m->mailbox[POSTED]) - sequence < MAILBOX_SLOTS;
}

/* Take the next message, if there is one; its last cell becomes its number, from 1. */
int memory_take(LoopMemory *m, double record[MESSAGE_CELLS]) {
    int64_t sequence = m->mailbox[TAKEN];
    if (load(&m->mailbox[POSTED]) <= sequence) return 0;
    memcpy(record, message(m, sequence), MESSAGE_CELLS * sizeof *record);
    sequence++;
    memcpy(record + MESSAGE_CELLS - 1, &sequence, sizeof sequence);
    store(&m->mailbox[TAKEN], sequence);
    return 1;
}

/* Post a message, in turn with other processes; its number from 1, or -1 if nobody takes them. */
int64_t memory_post(LoopMemory *m, const double record[MESSAGE_CELLS]) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(m->segment.file, F_SETLKW, &lock) != 0) return -1;
    int64_t sequence = m->mailbox[POSTED];
    int is_full = sequence - load(&m->mailbox[TAKEN]) >= MAILBOX_SLOTS;
    if (!is_full) {
        double *cells = message(m, sequence);
        memcpy(cells, record, MESSAGE_CELLS * sizeof *record);
        memset(cells + LINE / CELL, 0, 2 * sizeof *cells); /* no payload */
        store(&m->mailbox[POSTED], sequence + 1);
    }
    lock.l_type = F_UNLCK;
    fcntl(m->segment.file, F_SETLK, &lock);
    return is_full ? -1 : sequence + 1;
}

/* A sign of life: its number, then its time in ns. */
void beat(int64_t *heartbeat) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    heartbeat[1]++;
    store(heartbeat, t.tv_sec * INT64_C(1000000000) + t.tv_nsec);
}
