/* A rig without Python: the loop of the real-time process in C, around the compiled program of hilserver. */
#ifndef HILSERVER_RUNNER_H
#define HILSERVER_RUNNER_H

#define _GNU_SOURCE /* before all headers of the system: CPU sets, threads */

#include <stddef.h>
#include <stdint.h>

enum { CELL = 8, MESSAGE_CELLS = 8, FINGERPRINT = 16, LONGEST = 4096 };

/* --- messages (main.c) -------------------------------------------------------------------------------------------- */

/* Print a sentence to standard error; gives 0, which stands for failure in all functions that return an int. */
int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- the pack (pack.c) -------------------------------------------------------------------------------------------- */

/* Cells of the pack's image: where they begin, and their number. */
typedef struct {
    int64_t at, n;
} Part;

/* The file rig.pack begins with this, as `hilserver/runner/pack.py` writes it; the image follows. All that it says of
   the image is checked when it is read, so that no table ends beyond its memory. */
typedef struct {
    char magic[8], fingerprint[FINGERPRINT];
    uint64_t checksum; /* CRC-32 of all that follows */
    int64_t size;      /* of the file, in bytes */
    Part programs;     /* CRC-32 of the shared library of each level */
    Part plan, index, value, row;
    Part columns;     /* columns of the row that are set from outside before each tick, in the order of `Input` */
    Part rest, safe;  /* columns of the commands of valves and outputs, and their values in the safe state */
    Part devices;     /* frames of the simulated devices (`Attached` in tick/lockstep.py): the cell of each */
    Part dimensions;  /* of the arrays in such a frame: each is the cell of its first number, and its shape */
    Part workers;     /* records of devices with a worker (`Worker`) */
    Part name;        /* text: the rig's name */
    Part words;       /* text: lines "kind number name" for modes, faults, results, commands, inputs, valves, … */
    Part about;       /* text: the header of a log of this rig, for the rows file */
    int64_t n_work, period_ns, ramp_ticks, confirmed, confirmed_age, raw, age;
    int64_t mode, fault, command, result;         /* columns */
    int64_t priority, cpus, lock_memory;          /* 0: none; bits; 0 or 1 */
    int64_t min_free, max_bytes;                  /* of the disk; of a file of rows */
    int64_t circuit_cells, circuit_code;          /* of a circuit's index: the least number; one that must be 0 */
} Head;

/* A device that a worker reads and writes: its place in the row. */
typedef struct {
    int64_t first_slot, n_inputs, first_output, n_outputs, error_column;
    Part name, outputs; /* columns of the row */
} Worker;

enum Input {
    TICK, UTC, MISSED, HEARTBEAT_AGE, WAKE_ERROR, READ_TIME, COMPUTE_TIME, WRITE_TIME, PUBLISH_TIME, DEVICE_ERROR,
    FIRST_READING
};

typedef struct {
    char *bytes;
    const Head *head;
    int64_t *image;
} Pack;

char *read_file(const char *path, size_t *size);
uint32_t crc32_of(uint32_t crc, const void *bytes, size_t n);
int pack_read(Pack *pack, const char *folder);
int is_index(const Head *head, const int64_t *index, int64_t n);
int64_t *cells_of(const Pack *pack, Part part);
const char *text_of(const Pack *pack, Part part);
const char *name_of(const Pack *pack, const char *kind, int64_t number, char *buffer, size_t size);
int64_t number_of(const Pack *pack, const char *kind, const char *name);

/* --- the loop (loop.c) -------------------------------------------------------------------------------------------- */

/* A function of the compiled program; gives 0 if it has worked. Its arguments are cells, see circuit/program.py. */
typedef int32_t Entry(int64_t *frame);

/* The first arguments of `tick`, and all of `run_bridged`. */
typedef struct {
    int64_t plan, n_plan, index, n_index, value, n_value, row, n_row, work, n_work, command, n_command;
    int64_t inputs, n_inputs, given, n_given, given_width, devices, n_devices, rows, n_rows, row_width, kept, n_kept;
} Frame;

struct LoopMemory;

typedef struct {
    Pack pack;
    Entry *tick, *run_bridged;
    double *row, *work;
    int64_t *whole; /* the row, as whole numbers */
    const int64_t *columns;
    int64_t width;
    union {
        double number[MESSAGE_CELLS];
        int64_t cell[MESSAGE_CELLS]; /* 0: kind, 7: sequence number */
    } command;
    Frame frame;
} Loop;

int loop_read(Loop *loop, const char *folder);
int loop_open(Loop *loop, const char *folder);
int loop_try(Loop *loop);
int loop_tick(Loop *loop);
int loop_step(Loop *loop);
int loop_use(Loop *loop, int64_t *index, int64_t n_index, double *value, int64_t n_value, int64_t n_work);
int command_from(const Pack *pack, const char *text, double record[MESSAGE_CELLS]);
void print_state(const Loop *loop, const double *row, const struct LoopMemory *memory);

/* --- files of rows (rows.c) --------------------------------------------------------------------------------------- */

/* A file of rows is a header, a text, and records of these kinds. Of ROW and START: a row; of COMMAND: the message that
   the next row takes; of CIRCUIT: length of index, of values, of the scratch space, and both arrays. */
enum Kind { ROW = 1, COMMAND = 2, CIRCUIT = 3, START = 4 };

typedef struct {
    char magic[8], fingerprint[FINGERPRINT];
    int64_t width, n_text; /* in cells */
    int64_t checksum;      /* CRC-32 of the text */
} RowsHead;

typedef struct {
    uint32_t kind, checksum;
    int64_t n; /* cells */
} RecordHead;

typedef struct {
    int file;
    int64_t size; /* bytes, of complete records */
} RowsFile;

int rows_create(RowsFile *rows, const char *path, const Pack *pack, int64_t width);
int rows_add(RowsFile *rows, uint32_t kind, const void *cells, int64_t n);
int rows_close(RowsFile *rows);

int replay(Loop *loop, const char *path, const char *out);
enum { MOST_ORDERS = 256 };

int run_lockstep(Loop *loop, int64_t ticks, const char *const *texts, int n_orders, const char *out);

/* --- shared memory (memory.c), as in hilserver/realtime ----------------------------------------------------------- */

/* A number that another thread or process reads or writes: what was written before it was stored is seen by who has
   loaded it. */
static inline int64_t load(const int64_t *number) { return __atomic_load_n(number, __ATOMIC_ACQUIRE); }
static inline void store(int64_t *number, int64_t value) { __atomic_store_n(number, value, __ATOMIC_RELEASE); }

typedef struct {
    int64_t *published;
    double *rows;
    int64_t width, capacity;
} Ring;

typedef struct {
    char path[128];
    int file;
    char *memory;
    size_t size;
} Segment;

/* What the loop shares with others: rows, commands, signs of life. `info`: the loop's process, whether it is to end,
   missed ticks, latest start in ns. */
typedef struct LoopMemory {
    Segment segment;
    int64_t *info, *supervisor, *heartbeat, *mailbox;
    Ring ring;
} LoopMemory;

enum { RING_ROWS = 512, MAILBOX_SLOTS = 64, PROCESS_AT = 0, STOP_AT, MISSED_AT = 3, LATEST_AT };

int segment_create(Segment *segment, const char *name, size_t size, const int64_t shape[4]);
int segment_attach(Segment *segment, const char *name, int64_t shape[4]);
void segment_close(Segment *segment);
size_t ring_size(int64_t width, int64_t capacity);
Ring ring_on(char *memory, int64_t width, int64_t capacity);
double *ring_slot(const Ring *ring);
void ring_publish(Ring *ring);
int64_t ring_copy(const Ring *ring, int64_t number, double *row);
int64_t ring_latest(const Ring *ring, double *row);
int memory_create(LoopMemory *m, const char *name, int64_t width);
int memory_attach(LoopMemory *m, const char *name, int64_t width);
int memory_take(LoopMemory *m, double record[MESSAGE_CELLS]);
int64_t memory_post(LoopMemory *m, const double record[MESSAGE_CELLS]);
int memory_copy(const LoopMemory *m, int64_t sequence, double record[MESSAGE_CELLS]);
void beat(int64_t *heartbeat);

/* --- devices with workers (worker.c) ------------------------------------------------------------------------------ */

typedef struct {
    const Worker *place;
    const int64_t *outputs;
    Segment segment;
    int64_t *state;
    Ring samples, commands;
    double *sample, commanded_at;
} Device;

int device_open(Device *device, const Loop *loop, const Worker *place);
void device_read(Device *device, Loop *loop);
void device_write(Device *device, Loop *loop);
void device_request_safe(Device *device);
int device_is_safe(Device *device);
void device_close(Device *device);

/* --- real time (realtime.c) --------------------------------------------------------------------------------------- */

double now(void);
int check_machine(const Loop *loop);
int run_in_real_time(Loop *loop, const char *rows, double duration);

#endif
