/* The loop in real time: wait, read, tick, write, publish. Another thread records and reports. */
#include "runner.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const int64_t NS = 1000000000;
static const double REPORT_EVERY = 10.0; /* s, if nothing changes */
enum { MOST_DEVICES = 32, STACK = 128 * 1024, POLL_NS = 20000000 };
enum { UNKNOWN = -1, SWAP = 10, CODE = 19 }; /* kinds of commands, as in hilserver/tick/codes.py; and none of these */

typedef struct {
    Loop *loop;
    LoopMemory memory;
    Device devices[MOST_DEVICES];
    int n_devices;
    int64_t last_tick; /* at which it ends in any case; -1: it goes on */
    double parts[4];   /* durations in the previous tick, s: read, compute, write, publish */
    /* of the recorder's thread */
    pthread_t thread;
    int64_t is_over;
    RowsFile rows;
    const char *file;
    double *row;
    int64_t cursor, taken;
    int has_gap, is_cut;
    int part, before; /* numbers of the present file and of the one before it; -1: none */
} Run;

static Run run_of_this_process; /* there is one, which the handlers of signals know */
static volatile sig_atomic_t stopping;

static void stop(int signal_number) {
    (void)signal_number;
    stopping = 1;
}

/* A crash: those that can still do something for the machine are told. */
static void crash(int signal_number) {
    static const char TEXT[] =
        "hilserver-runner: the loop has crashed; the safe values were requested of the workers.\n";
    Run *run = &run_of_this_process;
    for (int i = 0; i < run->n_devices; i++) device_request_safe(&run->devices[i]);
    if (write(STDERR_FILENO, TEXT, sizeof TEXT - 1) < 0) {} /* nobody reads it */
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* No signal that a user or a service manager sends ends the loop before the valves have their safe values. */
static void handle_signals(void) {
    const int ends[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP}, crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_handler = stop}, present;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (sigaction(ends[i], NULL, &present) == 0 && present.sa_handler != SIG_IGN) /* as nohup sets it */
            sigaction(ends[i], &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = crash;
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) sigaction(crashes[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* nobody reads the reports: the loop goes on */
    signal(SIGXFSZ, SIG_IGN); /* a limit of the files' size: a write fails */
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * NS + t.tv_nsec;
}

/* CLOCK_MONOTONIC, s. */
double now(void) { return 1e-9 * (double)clock_ns(CLOCK_MONOTONIC); }

/* --- what the operating system grants ----------------------------------------------------------------------------- */

static void degraded(const char *what, const char *why) { printf("{\"degradation\": \"%s: %s\"}\n", what, why); }

static int has_capability(int number) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long bits = 0;
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) sscanf(line, "CapEff: %llx", &bits);
    fclose(file);
    return bits >> number & 1;
}

/* Keep all pages in memory; not where later pages would be beyond the limit of this user. */
static void lock_memory(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && !has_capability(14))
        degraded("memory lock", "this user may lock a part only. Set memlock unlimited in /etc/security/limits.conf");
    else if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) degraded("memory lock", strerror(errno));
}

static int is_real_time_kernel(void) {
    FILE *file = fopen("/sys/kernel/realtime", "r");
    int number = 0;
    if (file == NULL) return 0;
    if (fscanf(file, "%d", &number) != 1) number = 0;
    fclose(file);
    return number == 1;
}

/* Make this thread a real-time one, as far as the system permits. */
static void prepare(const Head *h) {
    if (h->lock_memory) lock_memory();
    if (h->cpus != 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        for (int i = 0; i < 63; i++)
            if (h->cpus >> i & 1) CPU_SET((size_t)i, &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) degraded("loop.cpus", strerror(errno));
    }
    struct sched_param priority = {.sched_priority = (int)h->priority};
    if (h->priority > 0 && sched_setscheduler(0, SCHED_FIFO, &priority) != 0) {
        degraded("SCHED_FIFO", "this user has no real-time priority. Set rtprio in /etc/security/limits.conf");
        prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    } else if (h->priority == 0) prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    if (!is_real_time_kernel()) degraded("real-time kernel", "this kernel is not built with PREEMPT_RT");
    fflush(stdout);
}

/* --- the recorder's thread ---------------------------------------------------------------------------------------- */

/* The name of a file of the recording: FILE.rows, FILE-001.rows, … */
static const char *part_of(const Run *run, int number, char *name, size_t size) {
    const char *ending = strrchr(run->file, '.');
    if (ending == NULL || strchr(ending, '/') != NULL) ending = run->file + strlen(run->file);
    if (number == 0) snprintf(name, size, "%s", run->file);
    else snprintf(name, size, "%.*s-%03d%s", (int)(ending - run->file), run->file, number, ending);
    return name;
}

/* Continue in another file where this one is long enough, and keep one before it. */
static int next_part(Run *run) {
    char name[LONGEST];
    if (run->rows.size < run->loop->pack.head->max_bytes) return 1;
    if (!rows_close(&run->rows)) return 0;
    if (run->before >= 0) unlink(part_of(run, run->before, name, sizeof name));
    run->before = run->part;
    do part_of(run, ++run->part, name, sizeof name);
    while (access(name, F_OK) == 0); /* of another run */
    run->has_gap = 1; /* for this file, the first row is one to start from */
    return rows_create(&run->rows, name, &run->loop->pack, run->loop->width);
}

/* End the recording; the loop goes on. */
static void end_recording(Run *run, const char *why) {
    refuse("%s: the recording ends here: %s", run->file, why);
    rows_close(&run->rows);
    run->is_cut = 1;
}

/* End the recording before the disk is full. */
static void watch_disk(Run *run) {
    struct statvfs disk;
    double free = fstatvfs(run->rows.file, &disk) == 0 ? (double)disk.f_bavail * (double)disk.f_frsize : 1e18;
    if (free < (double)run->loop->pack.head->min_free) end_recording(run, "the disk is nearly full");
}

/* A circuit can't be switched here: the tick gets a command that it does not know, and refuses it. */
static void refuse_switch(int64_t *kind) {
    if (*kind == SWAP || *kind == CODE) *kind = UNKNOWN;
}

/* Record the row in `run->row`, and the command that it took; behind a gap, as a row to start from. */
static int record(Run *run) {
    int64_t taken = ((int64_t *)run->row)[run->loop->pack.head->command], message[MESSAGE_CELLS];
    int written = 1;
    if (taken != run->taken && taken > 0 && !run->has_gap) {
        if (memory_copy(&run->memory, taken - 1, (double *)message)) {
            refuse_switch(&message[0]);
            message[MESSAGE_CELLS - 1] = taken;
            written = rows_add(&run->rows, COMMAND, message, MESSAGE_CELLS);
        } else run->has_gap = 1; /* another command has taken its place: from here on, the rows can be computed again */
    }
    run->taken = taken;
    written = written && rows_add(&run->rows, run->has_gap ? START : ROW, run->row, run->loop->width);
    run->has_gap = 0;
    return written;
}

/* Whether a report can be printed without waiting for who reads it: a reader that hangs must not end the recording. */
static int is_read(void) {
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0;
}

/* Record all rows that are new. */
static void follow(Run *run) {
    const Ring *ring = &run->memory.ring;
    while (run->cursor < load(ring->published)) {
        int64_t behind = ring_copy(ring, run->cursor, run->row);
        if (behind >= ring->capacity) { /* this row was overwritten meanwhile, others will be */
            if (is_read()) printf("{\"rows_lost\": %lld}\n", (long long)(behind - ring->capacity / 2));
            run->cursor += behind - ring->capacity / 2;
            run->has_gap = 1;
            continue;
        }
        if (run->rows.file >= 0 && !(next_part(run) && record(run))) end_recording(run, strerror(errno));
        run->cursor++;
    }
    if (run->rows.file >= 0) watch_disk(run);
}

static void *record_and_report(void *given) {
    Run *run = given;
    const Head *h = run->loop->pack.head;
    const struct timespec pause = {.tv_nsec = POLL_NS};
    int64_t mode = -1, fault = -1, *whole = (int64_t *)run->row;
    double due = 0.0;
    for (int last = 0; !last;) {
        last = load(&run->is_over) != 0;
        follow(run);
        if (run->cursor > 0 && (whole[h->mode] != mode || whole[h->fault] != fault || now() >= due || last)) {
            mode = whole[h->mode], fault = whole[h->fault], due = now() + REPORT_EVERY;
            if (is_read()) print_state(run->loop, run->row, &run->memory);
        }
        if (!last) nanosleep(&pause, NULL);
    }
    return NULL;
}

static int start_recorder(Run *run, const char *file) {
    pthread_attr_t small;
    run->file = file;
    run->before = -1;
    run->rows.file = -1;
    run->row = calloc((size_t)run->loop->width, CELL);
    if (run->row == NULL) return refuse("there is no memory");
    if (file != NULL && !rows_create(&run->rows, file, &run->loop->pack, run->loop->width)) return 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK); /* all of it is locked */
    int problem = pthread_create(&run->thread, &small, record_and_report, run);
    return problem == 0 || refuse("no second thread: %s", strerror(problem));
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

/* Sleep until the next point of the grid, and note it in the row; 0 where the kernel refuses to sleep. */
static int wait_for_tick(Loop *loop, int64_t start, LoopMemory *memory) {
    int64_t period = loop->pack.head->period_ns, tick = loop->whole[loop->columns[TICK]] + 1;
    int64_t deadline = start + tick * period;
    struct timespec at = {deadline / NS, deadline % NS};
    int result;
    while ((result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) == EINTR) {}
    if (result != 0) return refuse("clock_nanosleep: %s", strerror(result));
    int64_t late = clock_ns(CLOCK_MONOTONIC) - deadline, missed = late / period;
    loop->whole[loop->columns[TICK]] = tick + missed;
    loop->whole[loop->columns[MISSED]] = missed;
    loop->row[loop->columns[WAKE_ERROR]] = 1e-9 * (double)(late - missed * period);
    store(&memory->info[MISSED_AT], memory->info[MISSED_AT] + missed);
    if (late > memory->info[LATEST_AT]) store(&memory->info[LATEST_AT], late);
    return 1;
}

/* Whether the valves have reached their safe commands, or the time for it has passed. */
static int is_at_rest(Run *run) {
    const Head *h = run->loop->pack.head;
    const int64_t *column = cells_of(&run->loop->pack, h->rest);
    const double *safe = (const double *)cells_of(&run->loop->pack, h->safe);
    int64_t tick = run->loop->whole[run->loop->columns[TICK]];
    if (isfinite(run->loop->row[run->loop->columns[HEARTBEAT_AGE]])) return 0;
    if (run->last_tick < 0) run->last_tick = tick + h->ramp_ticks;
    int at_rest = 1;
    for (int64_t i = 0; i < h->rest.n; i++) at_rest &= run->loop->row[column[i]] == safe[i];
    return at_rest || tick > run->last_tick;
}


/* One tick, from its wake-up to its publication; 0 where the loop must end. */
static int one_tick(Run *run, double end) {
    Loop *loop = run->loop;
    double *row = loop->row, begin = now();
    const int64_t *column = loop->columns;
    row[column[UTC]] = 1e-9 * (double)clock_ns(CLOCK_REALTIME);
    int is_ending = stopping || load(&run->memory.info[STOP_AT]) != 0 || begin > end;
    row[column[HEARTBEAT_AGE]] = is_ending ? (double)INFINITY : 0.0;
    for (int i = 0; i < 4; i++) row[column[READ_TIME + i]] = run->parts[i];
    for (int i = 0; i < run->n_devices; i++) device_read(&run->devices[i], loop);
    if (memory_take(&run->memory, loop->command.number)) refuse_switch(&loop->command.cell[0]);
    double read = now();
    if (!loop_step(loop)) return 0;
    double computed = now();
    for (int i = 0; i < run->n_devices; i++) device_write(&run->devices[i], loop);
    double written = now();
    memcpy(ring_slot(&run->memory.ring), row, (size_t)loop->width * CELL);
    ring_publish(&run->memory.ring);
    beat(run->memory.heartbeat);
    const double parts[] = {read - begin, computed - read, written - computed, now() - written};
    memcpy(run->parts, parts, sizeof parts);
    return 1;
}

static int run_loop(Run *run, double duration) {
    int64_t period = run->loop->pack.head->period_ns;
    int64_t start = clock_ns(CLOCK_MONOTONIC) + 2 * period;
    double end = duration > 0.0 ? 1e-9 * (double)start + duration : (double)INFINITY;
    store(&run->memory.info[PROCESS_AT], getpid());
    run->last_tick = -1;
    do {
        if (!wait_for_tick(run->loop, start, &run->memory) || !one_tick(run, end)) return 0;
    } while (!is_at_rest(run));
    return 1;
}

static int open_devices(Run *run) {
    const Head *h = run->loop->pack.head;
    const Worker *workers = (const Worker *)cells_of(&run->loop->pack, h->workers);
    int64_t n = h->workers.n / (int64_t)(sizeof *workers / CELL);
    if (n > MOST_DEVICES) return refuse("%lld devices with workers: at most %d", (long long)n, MOST_DEVICES);
    for (; run->n_devices < n; run->n_devices++)
        if (!device_open(&run->devices[run->n_devices], run->loop, &workers[run->n_devices])) return 0;
    return 1;
}

/* Let all devices have their safe values: all are asked before one is waited for. 0 if one does not confirm them. */
static int make_safe(Run *run) {
    int are_safe = 1;
    for (int i = 0; i < run->n_devices; i++) device_request_safe(&run->devices[i]);
    for (int i = 0; i < run->n_devices; i++) are_safe &= device_is_safe(&run->devices[i]);
    return are_safe;
}

/* Run in real time until SIGTERM, or for a time in s (0: without end). `rows`: file for all rows, or NULL. */
int run_in_real_time(Loop *loop, const char *rows, double duration) {
    Run *run = &run_of_this_process;
    int done = 1;
    run->loop = loop;
    handle_signals();
    if (!memory_create(&run->memory, text_of(&loop->pack, loop->pack.head->name), loop->width)) return 0;
    if ((done = open_devices(run) && start_recorder(run, rows))) {
        prepare(loop->pack.head);
        done = run_loop(run, duration);
        done &= make_safe(run);
        store(&run->is_over, 1);
        pthread_join(run->thread, NULL);
    }
    store(&run->memory.info[PROCESS_AT], 0);
    for (int i = 0; i < run->n_devices; i++) device_close(&run->devices[i]);
    segment_close(&run->memory.segment);
    return done && !run->is_cut && (rows_close(&run->rows) || refuse("%s: can't be written", rows));
}

/* Say what this machine does not grant; nothing is run. */
int check_machine(const Loop *loop) {
    prepare(loop->pack.head);
    printf("{\"rig\": \"%s\", \"ready\": true}\n", text_of(&loop->pack, loop->pack.head->name));
    return 1;
}
