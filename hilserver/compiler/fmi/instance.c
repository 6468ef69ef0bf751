#include "instance.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[8] = {'H', 'I', 'L', 'F', 'M', 'U', '0', '1'};
static const char FILE_NAME[] = "circuit.bin";
enum { LONGEST = 512 };

/* The compiled circuit engine: an entry point takes the cells of its arguments, an array as its address and length. */
extern int32_t hilserver_advance(int64_t *frame);

static int64_t address(const void *p) { return (int64_t)(intptr_t)p; }

static int64_t bits(double x) {
    int64_t cell;
    memcpy(&cell, &x, sizeof cell);
    return cell;
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

int refuse(const Instance *s, const char *format, ...) {
    char text[LONGEST];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (*c == '%') *c = ' '; /* an importer may take it for a format */
    if (s->log != NULL) s->log(s, ERROR, text);
    return ERROR;
}

static const char *name_of_phase(int phase) {
    switch (phase) {
    case INSTANTIATED: return "before the initialization";
    case INITIALIZATION: return "in initialization mode";
    case STEP: return "between steps";
    case EVENT: return "in event mode";
    case CONTINUOUS: return "in continuous-time mode";
    case TERMINATED: return "after the end of the simulation";
    default: return "after a failed step: reset the FMU or set an earlier state";
    }
}

/* Whether a function may be called now. */
int allowed(const Instance *s, const char *function, int phases) {
    if (s == NULL) return 0;
    if (s->phase & phases) return 1;
    refuse(s, "%s can't be called %s.", function, name_of_phase(s->phase));
    return 0;
}

/* --- the file of the circuit --------------------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long end = ftell(file);
        rewind(file);
        if (end > 0 && (bytes = malloc((size_t)end)) != NULL) {
            *size = (size_t)end;
            if (fread(bytes, 1, *size, file) != *size) {
                free(bytes);
                bytes = NULL;
            }
        }
    }
    fclose(file);
    return bytes;
}

static int64_t n_of_file(const Header *h) { return h->n_row + h->n_value + h->n_constants; }

/* Locate the parts of the file; 0 if its size is not that of its parts. */
static int locate(Instance *s, size_t size) {
    const Header *h = (const Header *)s->file;
    if (size < sizeof *h || memcmp(h->magic, MAGIC, sizeof MAGIC) != 0) return 0;
    const int64_t *counts = &h->n_index;
    for (int i = 0; i < 8; i++)
        if (counts[i] < 0 || counts[i] > (int64_t)1 << 40) return 0;
    size_t cells = (size_t)(h->n_index + n_of_file(h) + 6 * h->n_variables + 2 * h->n_places);
    if (size != sizeof *h + 8 * cells + (size_t)h->n_text || h->n_text < 1 || h->n_constants < 1) return 0;
    s->header = h;
    s->index = (const uint64_t *)(h + 1);
    s->variables = (const Variable *)(s->index + h->n_index + n_of_file(h));
    s->places = (const int64_t *)(s->variables + h->n_variables);
    s->factors = (const double *)(s->places + h->n_places);
    s->text = (const char *)(s->factors + h->n_places);
    s->n_cells = (size_t)(n_of_file(h) + h->n_work);
    return s->text[h->n_text - 1] == '\0';
}

/* --- instances ------------------------------------------------------------------------------------------------------ */

static int make_cells(Instance *s) {
    const Header *h = s->header;
    s->cells = calloc(s->n_cells, sizeof(double));
    s->kept = calloc((size_t)h->n_row, sizeof(double));
    if (s->cells == NULL || s->kept == NULL) return 0;
    s->row = s->cells;
    s->value = s->row + h->n_row;
    s->work = s->value + h->n_value + h->n_constants;
    s->due = s->work - 1;
    return 1;
}

/* A new instance; NULL, with a message, if that is not possible. `folder`: the FMU's resources. */
Instance *instance_new(const char *name, const char *token, const char *folder, void *environment, void *logger,
                       Log *log) {
    Instance *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->environment = environment, s->logger = logger, s->log = log, s->phase = INSTANTIATED;
    if (name == NULL || *name == '\0') name = "";
    s->name = calloc(strlen(name) + 1, 1);
    size_t size = 0, length = folder == NULL ? 0 : strlen(folder);
    char *path = calloc(length + sizeof FILE_NAME + 1, 1);
    const char *problem = NULL;
    if (s->name == NULL || path == NULL) {
        problem = "there is no memory for an instance.";
    } else if (folder == NULL) {
        problem = "the folder of the FMU's resources is not given.";
    } else {
        strcpy(s->name, name);
        memcpy(path, folder, length);
        if (length > 0 && path[length - 1] != '/') path[length++] = '/';
        strcpy(path + length, FILE_NAME);
        if (*name == '\0') problem = "the instance has no name.";
        else if ((s->file = read_file(path, &size)) == NULL) problem = "can't be read";
        else if (!locate(s, size)) problem = "is damaged";
        else if (token == NULL || strcmp(token, s->text) != 0)
            problem = "the token (GUID) is not that of this FMU: its modelDescription.xml belongs to another one.";
        else if (!make_cells(s)) problem = "there is no memory for an instance.";
    }
    if (problem != NULL) {
        int of_file = path != NULL && (strcmp(problem, "can't be read") == 0 || strcmp(problem, "is damaged") == 0);
        refuse(s, of_file ? "%s %s." : "%s%s", of_file ? path : "", problem);
        instance_free(s);
        s = NULL;
    } else {
        instance_reset(s);
    }
    free(path);
    return s;
}

/* The same for model exchange; NULL if the circuit does not allow it. */
Instance *for_exchange(Instance *s) {
    if (s == NULL) return NULL;
    s->is_exchange = 1;
    if (s->header->n_mechanisms == 0) return s;
    refuse(s, "this FMU is for co-simulation: a circuit with a mechanism can't be used for model exchange.");
    instance_free(s);
    return NULL;
}

void instance_free(Instance *s) {
    if (s == NULL) return;
    free(s->cells);
    free(s->kept);
    free(s->file);
    free(s->name);
    free(s);
}

/* All cells as in the file: initial values, parameters. */
void instance_reset(Instance *s) {
    memset(s->cells, 0, s->n_cells * sizeof(double));
    memcpy(s->cells, s->index + s->header->n_index, (size_t)n_of_file(s->header) * sizeof(double));
    s->phase = INSTANTIATED;
    touch(s);
}

/* --- steps ---------------------------------------------------------------------------------------------------------- */

/* The first cells of a frame: the arrays of the circuit. */
int64_t *fill_frame(Instance *s, int64_t *frame) {
    const Header *h = s->header;
    const int64_t arrays[ARRAYS] = {address(s->index), h->n_index, address(s->value), h->n_value, address(s->row),
                                    h->n_values, address(s->row + h->n_values), h->n_row - h->n_values,
                                    address(s->work), h->n_work};
    memcpy(frame, arrays, sizeof arrays);
    return frame;
}

/* Advance by steps of `h` seconds; with none, the results follow from the present values and inputs. */
static int advance(Instance *s, int64_t steps, double h) {
    int64_t frame[FRAME_CELLS] = {[ARRAYS] = steps, [ARRAYS + 1] = bits(h)};
    s->is_stale = s->has_rates = 0;
    return hilserver_advance(fill_frame(s, frame)) == 0 ? OK : refuse(s, "the compiled circuit failed.");
}

static double step_of(const Instance *s) { return s->header->tick / (double)s->header->substeps; }

/* A value, an input or a parameter has changed. */
void touch(Instance *s) {
    s->is_stale = 1;
    s->has_rates = 0;
}

/* Make all results follow from the present values and inputs. */
int refresh(Instance *s) {
    return s->is_stale ? advance(s, 0, s->is_exchange ? 0.0 : step_of(s)) : OK;
}

static const char *name_of(const Instance *s, const Variable *v) { return s->text + v->name; }

/* An error that names a value which is not finite. */
static int diverged(Instance *s) {
    const Header *h = s->header;
    const char *name = "a state";
    for (int64_t i = h->n_variables - 1; i >= 0; i--) {
        const Variable *v = &s->variables[i];
        if (v->kind == OUTPUT && !isfinite(s->cells[s->places[v->first]])) name = name_of(s, v);
    }
    s->phase = FAILED;
    return refuse(s, "%s is not finite near %g s: the step of %g us is too long for this circuit, or an input or a "
                  "parameter has led it there.", name, s->row[h->n_states], 1e6 * step_of(s));
}

/* Advance by a communication step: ticks of the circuit, and steps that are not longer for what remains. */
int do_step(Instance *s, double from, double length) {
    const Header *h = s->header;
    double now = s->row[h->n_states], tick = h->tick;
    if (!(length > 0.0) || !isfinite(length)) return refuse(s, "a communication step of %g s is not possible.", length);
    if (!(fabs(from - now) <= 1e-3 * tick + 1e-12 * fabs(now)))
        return refuse(s, "the communication point %.12g s is not the time of the FMU, %.12g s.", from, now);
    double remaining = from + length - now, ticks = floor(remaining / tick + 1e-6), rest = remaining - ticks * tick;
    for (double k = 0.0; k < ticks; k += 1.0)
        if (advance(s, h->substeps, step_of(s)) != OK) return ERROR;
    if (rest > 1e-6 * tick) {
        double steps = ceil(rest / step_of(s) - 1e-6);
        if (advance(s, (int64_t)steps, rest / steps) != OK) return ERROR;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < h->n_values; i++) sum += s->row[i];
    return isfinite(sum) ? OK : diverged(s);
}

/* Before the initialization: the time at which the simulation starts. */
int start(Instance *s, double time) {
    if (!isfinite(time)) return refuse(s, "%g s is not a time.", time);
    s->row[s->header->n_states] = time;
    return OK;
}

/* At the end of the initialization. */
int begin(Instance *s) {
    touch(s);
    return refresh(s);
}

/* --- variables ------------------------------------------------------------------------------------------------------- */

static const Variable *variable(const Instance *s, uint32_t reference) {
    if (reference < (uint64_t)s->header->n_variables) return &s->variables[reference];
    refuse(s, "there is no variable with the value reference %u: the last one is %lld.", reference,
           (long long)s->header->n_variables - 1);
    return NULL;
}

int get_values(Instance *s, const uint32_t *references, size_t n, double *values) {
    if (n > 0 && (references == NULL || values == NULL)) return refuse(s, "a null pointer was given for the values.");
    if (s->phase != INSTANTIATED && s->phase != FAILED && refresh(s) != OK) return ERROR;
    for (size_t i = 0; i < n; i++) {
        const Variable *v = variable(s, references[i]);
        if (v == NULL || (v->kind == DERIVATIVE && rate(s) != OK)) return ERROR;
        values[i] = s->cells[s->places[v->first]];
    }
    return OK;
}

/* Why a variable can't be set; NULL if it can. */
static const char *obstacle(const Instance *s, const Variable *v) {
    switch (v->kind) {
    case INPUT:
    case TUNABLE: return NULL;
    case FIXED: return s->phase & (INSTANTIATED | INITIALIZATION) ? NULL : "can be set before the start only";
    case CONSTANT: return "is fixed in this FMU: change it in the circuit and export it again";
    default: return "is calculated by the FMU";
    }
}

int set_values(Instance *s, const uint32_t *references, size_t n, const double *values) {
    if (n > 0 && (references == NULL || values == NULL)) return refuse(s, "a null pointer was given for the values.");
    for (size_t i = 0; i < n; i++) {
        const Variable *v = variable(s, references[i]);
        if (v == NULL) return ERROR;
        const char *reason = obstacle(s, v);
        if (reason != NULL) return refuse(s, "%s %s.", name_of(s, v), reason);
        if (!isfinite(values[i])) return refuse(s, "%s can't be set to %g.", name_of(s, v), values[i]);
        if (!(v->lower <= values[i] && values[i] <= v->upper))
            return refuse(s, "%s can't be set to %.12g: its range is %.12g to %.12g.", name_of(s, v), values[i],
                          v->lower, v->upper);
    }
    for (size_t i = 0; i < n; i++) {
        const Variable *v = &s->variables[references[i]];
        if (values[i] == s->cells[s->places[v->first]]) continue; /* packed numbers stay as they were calculated */
        for (int64_t k = v->first; k < v->first + v->count; k++)
            s->cells[s->places[k]] = values[i] * s->factors[k];
    }
    touch(s);
    return OK;
}

/* --- copies of the memory --------------------------------------------------------------------------------------------- */

/* FNV-1a of the FMU's token: a state is of use to its own FMU only. */
static int64_t mark(const Instance *s) {
    uint64_t hash = 14695981039346656037u;
    for (const char *c = s->text; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return (int64_t)hash;
}

size_t snapshot_size(const Instance *s) { return sizeof(Snapshot) + (s->n_cells + 1) * sizeof(double); }

static int belongs(const Instance *s, const Snapshot *snapshot) {
    if (snapshot->n_cells == (int64_t)s->n_cells && snapshot->mark == mark(s)) return 1;
    refuse(s, "this state is not one of this FMU.");
    return 0;
}

/* Copy the memory into `*snapshot`; into new memory if that is NULL. */
int snapshot_get(const Instance *s, void **snapshot) {
    if (snapshot == NULL) return refuse(s, "a null pointer was given for the state.");
    Snapshot *made = *snapshot;
    if (made != NULL && !belongs(s, made)) return ERROR;
    if (made == NULL && (made = malloc(snapshot_size(s))) == NULL) return refuse(s, "there is no memory for a state.");
    made->n_cells = (int64_t)s->n_cells, made->phase = s->phase, made->mark = mark(s);
    memcpy(made->cells, s->cells, s->n_cells * sizeof(double));
    made->cells[s->n_cells] = s->is_stale + 2 * s->has_rates;
    *snapshot = made;
    return OK;
}

int snapshot_set(Instance *s, const void *snapshot) {
    const Snapshot *given = snapshot;
    if (given == NULL) return refuse(s, "a null pointer was given for the state.");
    if (!belongs(s, given)) return ERROR;
    memcpy(s->cells, given->cells, s->n_cells * sizeof(double));
    s->phase = (int)given->phase;
    s->is_stale = (int)given->cells[s->n_cells] & 1;
    s->has_rates = (int)given->cells[s->n_cells] >> 1;
    return OK;
}

int snapshot_write(const Instance *s, const void *snapshot, void *bytes, size_t size) {
    if (snapshot == NULL || bytes == NULL) return refuse(s, "a null pointer was given for the state.");
    if (!belongs(s, snapshot)) return ERROR;
    if (size < snapshot_size(s)) return refuse(s, "a state needs %zu bytes, not %zu.", snapshot_size(s), size);
    memcpy(bytes, snapshot, snapshot_size(s));
    return OK;
}

int snapshot_read(const Instance *s, const void *bytes, size_t size, void **snapshot) {
    if (snapshot == NULL || bytes == NULL) return refuse(s, "a null pointer was given for the state.");
    if (size != snapshot_size(s)) return refuse(s, "a state has %zu bytes, not %zu.", snapshot_size(s), size);
    Snapshot *made = malloc(size);
    if (made == NULL) return refuse(s, "there is no memory for a state.");
    memcpy(made, bytes, size);
    if (!belongs(s, made)) {
        free(made);
        return ERROR;
    }
    if (*snapshot != NULL) free(*snapshot);
    *snapshot = made;
    return OK;
}
