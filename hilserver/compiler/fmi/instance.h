/* A circuit as an FMU: its data, its memory, its steps. Used by the functions of FMI 2.0 and 3.0. */
#ifndef HILSERVER_INSTANCE_H
#define HILSERVER_INSTANCE_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* The status of a call; the numbers are those of FMI 2.0 and of FMI 3.0. */
enum Status { OK = 0, DISCARD = 2, ERROR = 3, FATAL = 4 };

/* The states of an instance in the standard; a function allows a set of them. */
enum Phase { INSTANTIATED = 1, INITIALIZATION = 2, STEP = 4, EVENT = 8, CONTINUOUS = 16, TERMINATED = 32, FAILED = 64 };
#define EXCHANGE (EVENT | CONTINUOUS)
#define RUNNING (STEP | EXCHANGE)
#define ANY_PHASE 127

/* What may be done with a variable. `hilserver/fmu/packed.py` writes these numbers. */
enum Kind { OUTPUT, INPUT, TUNABLE, FIXED, CONSTANT, TIME, DERIVATIVE };

/* The file of the circuit begins with these cells. Behind them: index, cells, variables, places, factors, text. */
typedef struct {
    char magic[8];
    int64_t n_index, n_row, n_value, n_constants, n_work, n_variables, n_places, n_text;
    int64_t n_states, n_values, substeps, n_sampled, n_mechanisms, lower, upper, scale;
    double tick;
} Header;

/* A variable: its kind, its places (in the table `places`) in the cells, its name (in `text`), and its range. What is
   set is written to all its places, times their factors; the first place holds the value itself. */
typedef struct {
    int64_t kind, first, count, name;
    double lower, upper;
} Variable;

typedef struct Instance Instance;
typedef void Log(const Instance *s, int status, const char *text);

/* The memory of an instance is one block of cells: row (values of the circuit, then its recorded results), parameters
   of the packed circuit, constants that are only shown, the time at which sampled components are due in model exchange,
   and scratch space, which begins with the derivatives of the states. */
struct Instance {
    char *file;
    const Header *header;
    const uint64_t *index;
    const Variable *variables;
    const int64_t *places;
    const double *factors;
    const char *text;
    double *cells, *row, *value, *due, *work;
    double *kept; /* a copy of the row */
    size_t n_cells;
    int phase, is_exchange;
    int is_stale;  /* results do not follow from the present values and inputs */
    int has_rates; /* the scratch space holds their derivatives */
    char *name;
    void *environment;
    void *logger;
    Log *log;
};

/* A copy of the memory of an instance. */
typedef struct {
    int64_t n_cells, phase, mark;
    double cells[];
} Snapshot;

Instance *instance_new(const char *name, const char *token, const char *folder, void *environment, void *logger,
                       Log *log);
Instance *for_exchange(Instance *s);
void instance_free(Instance *s);
void instance_reset(Instance *s);

int refuse(const Instance *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
int allowed(const Instance *s, const char *function, int phases);

void touch(Instance *s);
int refresh(Instance *s);
int start(Instance *s, double time);
int begin(Instance *s);
int get_values(Instance *s, const uint32_t *references, size_t n, double *values);
int set_values(Instance *s, const uint32_t *references, size_t n, const double *values);
int do_step(Instance *s, double from, double length);

enum { FRAME_CELLS = 12, ARRAYS = 10 };
int64_t *fill_frame(Instance *s, int64_t *frame);

int rate(Instance *s);
int set_time(Instance *s, double time);
int set_states(Instance *s, const double *states, size_t n);
int get_states(Instance *s, double *states, size_t n);
int get_derivatives(Instance *s, double *derivatives, size_t n);
int get_nominals(const Instance *s, double *nominals, size_t n);
int needs_event(const Instance *s);
int handle_event(Instance *s, int *changed, int *has_next, double *next);

int snapshot_get(const Instance *s, void **snapshot);
int snapshot_set(Instance *s, const void *snapshot);
size_t snapshot_size(const Instance *s);
int snapshot_write(const Instance *s, const void *snapshot, void *bytes, size_t size);
int snapshot_read(const Instance *s, const void *bytes, size_t size, void **snapshot);

#endif
