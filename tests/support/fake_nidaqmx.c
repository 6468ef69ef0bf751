/* A small fake of NI's libnidaqmx: as much of the C interface as the nidaqmx Python package calls for single-point I/O.
 *
 * The devices live in a file, mapped into every process that loads this library (FAKE_NIDAQMX names it), as real ones
 * live outside of all processes: a test sets their inputs, pulls their plugs, injects errors, and sees what they got,
 * also after the process that drove them was killed. The layout of the file is mirrored in fake_nidaqmx.py.
 *
 * Rules of the real library that are kept, since a driver could break them: a channel belongs to one running task; a
 * task has channels of one kind; what is not started can't be written without auto_start; nothing of a device may run
 * when its watchdog is started; an expired watchdog locks the outputs until the device is reset.
 * Error codes: nidaqmx/error_codes.py.
 */
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int32_t int32;
typedef uint32_t uInt32;
typedef double float64;
typedef void *TaskHandle;

enum {
    OK = 0,
    WAIT_FOR_NEXT_SAMP_CLK_DETECTED_MISSED_SAMP_CLK = -209802,
    CONFIG_FAILED_BECAUSE_WATCHDOG_EXPIRED = -201434,
    DEV_CANNOT_BE_ACCESSED = -201003,
    CANNOT_WRITE_WHEN_AUTO_START_FALSE_AND_TASK_NOT_RUNNING = -200846,
    WATCHDOG_TIMER_FAILS_BECAUSE_OF_PROGRAMMED_IO = -201228,
    WRITE_FAILED_BECAUSE_WATCHDOG_EXPIRED = -200678,
    WATCHDOG_TIMER_NOT_SUPPORTED = -200662,
    CANT_RESET_EXPIRED_WATCHDOG = -200644,
    INVALID_AO_DATA_WRITE = -200561,
    MULTI_CHAN_TYPES_IN_TASK = -200559,
    CAN_NOT_PERFORM_OP_WHEN_NO_CHANS_IN_TASK = -200478,
    ATTRIBUTE_NOT_SUPPORTED_IN_TASK_CONTEXT = -200452,
    SAMPLES_NOT_YET_AVAILABLE = -200284,
    READ_BUFFER_TOO_SMALL = -200229,
    BUFFER_TOO_SMALL_FOR_STRING = -200228,
    INVALID_DEVICE_ID = -200220,
    PHYS_CHAN_MEAS_TYPE = -200431,
    PHYSICAL_CHAN_DOES_NOT_EXIST = -200170,
    INVALID_TASK = -200088,
    INVALID_ATTRIBUTE_VALUE = -200077,
    DRIVER_DEVICE_GUID_NOT_FOUND_ROUTING = -88705,
    PAL_RESOURCE_RESERVED = -50103,
};

enum { VAL_VOLTAGE = 10322, VAL_CURRENT = 10134, VAL_VOLTS = 10348, VAL_AMPS = 10342, VAL_TICKS = 10304, VAL_HIGH = 10192, VAL_LOW = 10214,
       VAL_CHAN_PER_LINE = 0, VAL_HW_TIMED_SINGLE_POINT = 12522, VAL_FINITE = 10178, VAL_CONTINUOUS = 10123,
       WATCHDOG_RESET_TIMER = 0, WATCHDOG_CLEAR_EXPIRATION = 1 };

enum { DEVICES = 4, CHANNELS = 16, FAULTS = 8, LOG = 8192, LINE = 96 };
enum kind { AI, AO, DI, DO, CI, WATCHDOG, KINDS };

struct device {
    char name[16], product[32];
    int32 present; /* plugged in */
    int32 current; /* its analog channels are for current, not for voltage */
    int32 hardware_timed;
    int32 watchdog; /* has one */
    int32 count[KINDS]; /* channels of each kind */
    float64 value[KINDS][CHANNELS];
    float64 power_up[KINDS][CHANNELS];
    float64 expiration[KINDS][CHANNELS]; /* NaN: not guarded */
    float64 watchdog_deadline;           /* monotonic; 0: not running */
    int32 watchdog_expired, unused;
};

struct fault { char function[48]; int32 code, after, times; };

struct state {
    struct device device[DEVICES];
    struct fault fault[FAULTS];
    float64 delay; /* seconds that a read takes */
    int64_t logging, logged;
    char log[LOG][LINE];
};

/* --- the file and the log ----------------------------------------------------------------------------------------- */

static struct state *state;
static char last_error[512];

static struct state *shared(void)
{
    if (state == NULL) {
        const char *path = getenv("FAKE_NIDAQMX");
        int file = path == NULL ? -1 : open(path, O_RDWR);
        if (file >= 0)
            state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file < 0 || state == MAP_FAILED) {
            fprintf(stderr, "fake nidaqmx: no file FAKE_NIDAQMX\n");
            abort();
        }
        close(file);
    }
    return state;
}

static float64 now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void note(const char *format, ...)
{
    struct state *s = shared();
    if (!s->logging)
        return;
    int64_t line = __atomic_fetch_add(&s->logged, 1, __ATOMIC_SEQ_CST);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->log[line % LOG], LINE, format, arguments);
    va_end(arguments);
}

static int32 failure(int32 code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(last_error, sizeof last_error - 32, format, arguments);
    va_end(arguments);
    snprintf(last_error + length, 32, "\n\nStatus Code: %d", code);
    return code;
}

/* The error that a test injected into this function, or 0. */
static int32 injected(const char *function)
{
    for (struct fault *f = shared()->fault; f < shared()->fault + FAULTS; f++)
        if (f->times != 0 && strcmp(f->function, function) == 0) {
            if (f->after > 0) {
                f->after--;
                continue;
            }
            if (f->times > 0)
                f->times--;
            return failure(f->code, "Injected into %s.", function);
        }
    return OK;
}

#define BEGIN(...)                          \
    do {                                    \
        note(__VA_ARGS__);                  \
        int32 error = injected(__func__ + 5); \
        if (error != OK)                    \
            return error;                   \
    } while (0)

/* --- devices and channels ------------------------------------------------------------------------------------------ */

static struct device *device_named(const char *name, size_t length)
{
    for (struct device *d = shared()->device; d < shared()->device + DEVICES; d++)
        if (strlen(d->name) == length && length > 0 && strncasecmp(d->name, name, length) == 0)
            return d;
    return NULL;
}

static const char *const prefixes[] = {"ai", "ao", "port0/line", "port0/line", "ctr"};

struct channel { struct device *device; int32 index; };

/* Parse "Dev1/ai3"; the kind is what the task wants to do with it. */
static int32 find(const char *text, enum kind kind, struct channel *found)
{
    const char *slash = strchr(text, '/');
    found->device = slash == NULL ? NULL : device_named(text, slash - text);
    if (found->device == NULL)
        return failure(INVALID_DEVICE_ID, "Device identifier is invalid.\n\nDevice Specified: %s", text);
    if (!found->device->present)
        return failure(DRIVER_DEVICE_GUID_NOT_FOUND_ROUTING,
                       "The specified device is not present or is not active in the system. The device may not be "
                       "installed on this system, may have been unplugged, or may not be installed correctly."
                       "\n\nDevice: %s", found->device->name);
    size_t length = strlen(prefixes[kind]);
    char *end = NULL;
    long index = -1;
    if (strncasecmp(slash + 1, prefixes[kind], length) == 0)
        index = strtol(slash + 1 + length, &end, 10);
    if (end == NULL || *end != 0 || index < 0 || index >= found->device->count[kind])
        return failure(PHYSICAL_CHAN_DOES_NOT_EXIST,
                       "Physical channel specified does not exist on this device.\n\nPhysical Channel Name: %s", text);
    found->index = index;
    return OK;
}

/* Parse "Dev1/ao0, Dev1/ao2:3". */
static int32 find_all(const char *text, enum kind kind, struct channel *found, int32 *n)
{
    char part[64], *colon;
    for (*n = 0; *text != 0;) {
        size_t length = strcspn(text, ",");
        snprintf(part, sizeof part, "%.*s", (int)length, text);
        text += length + (text[length] == ',');
        text += strspn(text, " ");
        int last = -1;
        if ((colon = strchr(part, ':')) != NULL) {
            last = atoi(colon + 1);
            *colon = 0;
        }
        int32 error = find(part, kind, &found[*n]);
        if (error != OK)
            return error;
        for (++*n; found[*n - 1].index < last; ++*n)
            found[*n] = (struct channel){found[*n - 1].device, found[*n - 1].index + 1};
    }
    return OK;
}

static void power_up(struct device *d)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (kind == AO || kind == DO)
            memcpy(d->value[kind], d->power_up[kind], sizeof d->value[kind]);
    d->watchdog_deadline = 0.0;
    d->watchdog_expired = 0;
}

static void expire_if_due(struct device *d)
{
    if (d->watchdog_expired || d->watchdog_deadline == 0.0 || now() < d->watchdog_deadline)
        return;
    d->watchdog_expired = 1;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < CHANNELS; i++)
            if (!isnan(d->expiration[kind][i])) {
                d->value[kind][i] = d->expiration[kind][i];
                note("expired %s/%s%d %.9g", d->name, prefixes[kind], i, d->value[kind][i]);
            }
}

/* For tests. */
size_t fake_size(void) { return sizeof(struct state); }

void fake_look(void)
{
    for (int i = 0; i < DEVICES; i++)
        expire_if_due(&shared()->device[i]);
}

void fake_power_cycle(int32 device) { power_up(&shared()->device[device]); }

/* --- tasks ----------------------------------------------------------------------------------------------------------- */

struct task {
    int32 number, used, running, n, edges, hardware_timed, report_missed;
    enum kind kind;
    struct channel channel[CHANNELS];
    float64 minimum[CHANNELS], maximum[CHANNELS];
    struct device *device; /* of a watchdog */
    float64 period, next, timeout;
};

static struct task tasks[64];

void fake_forget_tasks(void) { memset(tasks, 0, sizeof tasks); }

int32 fake_open_tasks(void)
{
    int32 n = 0;
    for (int i = 0; i < 64; i++)
        n += tasks[i].used;
    return n;
}

static struct task *task_of(TaskHandle handle)
{
    size_t number = (size_t)handle;
    return number >= 1 && number <= 64 && tasks[number - 1].used ? &tasks[number - 1] : NULL;
}

#define TASK(handle)                     \
    struct task *task = task_of(handle); \
    if (task == NULL)                    \
    return failure(INVALID_TASK, "Task specified is invalid or does not exist.")

static int32 new_task(TaskHandle *handle, enum kind kind)
{
    for (int i = 0; i < 64; i++)
        if (!tasks[i].used) {
            tasks[i] = (struct task){.number = i, .used = 1, .kind = kind};
            *handle = (TaskHandle)(size_t)(i + 1);
            return OK;
        }
    return failure(INVALID_TASK, "Too many tasks.");
}

int32 DAQmxCreateTask(const char *name, TaskHandle *handle)
{
    BEGIN("CreateTask %s", name);
    return new_task(handle, KINDS);
}

int32 DAQmxClearTask(TaskHandle handle)
{
    TASK(handle);
    note("ClearTask %d", task->number);
    if (task->kind == WATCHDOG && task->running && !task->device->watchdog_expired)
        task->device->watchdog_deadline = 0.0;
    task->used = 0;
    return injected("ClearTask");
}

static int32 add(TaskHandle handle, const char *name, enum kind kind, float64 minimum, float64 maximum)
{
    TASK(handle);
    if (task->kind != KINDS && task->kind != kind)
        return failure(MULTI_CHAN_TYPES_IN_TASK, "Specified operation: channels of several kinds in one task.");
    int32 error = find(name, kind, &task->channel[task->n]);
    if (error != OK)
        return error;
    task->kind = kind;
    task->minimum[task->n] = minimum;
    task->maximum[task->n++] = maximum;
    return OK;
}

static int32 add_analog(TaskHandle handle, const char *name, enum kind kind, int32 units, float64 minimum,
                        float64 maximum)
{
    int32 error = add(handle, name, kind, minimum, maximum);
    struct task *task = task_of(handle);
    if (error == OK && task->channel[task->n - 1].device->current != (units == VAL_AMPS))
        return failure(PHYS_CHAN_MEAS_TYPE, "Measurement type is not supported by the channel.");
    return error;
}

int32 DAQmxCreateAIVoltageChan(TaskHandle handle, const char *channel, const char *name, int32 terminals,
                               float64 minimum, float64 maximum, int32 units, const char *scale)
{
    BEGIN("CreateAIVoltageChan %s %d %g %g", channel, terminals, minimum, maximum);
    return add_analog(handle, channel, AI, units, minimum, maximum);
}

int32 DAQmxCreateAICurrentChan(TaskHandle handle, const char *channel, const char *name, int32 terminals,
                               float64 minimum, float64 maximum, int32 units, int32 shunt, float64 ohm,
                               const char *scale)
{
    BEGIN("CreateAICurrentChan %s %d %g %g %d %g", channel, terminals, minimum, maximum, shunt, ohm);
    return add_analog(handle, channel, AI, units, minimum, maximum);
}

int32 DAQmxCreateAOVoltageChan(TaskHandle handle, const char *channel, const char *name, float64 minimum,
                               float64 maximum, int32 units, const char *scale)
{
    BEGIN("CreateAOVoltageChan %s %g %g", channel, minimum, maximum);
    return add_analog(handle, channel, AO, units, minimum, maximum);
}

int32 DAQmxCreateAOCurrentChan(TaskHandle handle, const char *channel, const char *name, float64 minimum,
                               float64 maximum, int32 units, const char *scale)
{
    BEGIN("CreateAOCurrentChan %s %g %g", channel, minimum, maximum);
    return add_analog(handle, channel, AO, units, minimum, maximum);
}

int32 DAQmxCreateDIChan(TaskHandle handle, const char *lines, const char *name, int32 grouping)
{
    BEGIN("CreateDIChan %s", lines);
    return grouping == VAL_CHAN_PER_LINE ? add(handle, lines, DI, 0, 1) : INVALID_ATTRIBUTE_VALUE;
}

int32 DAQmxCreateDOChan(TaskHandle handle, const char *lines, const char *name, int32 grouping)
{
    BEGIN("CreateDOChan %s", lines);
    return grouping == VAL_CHAN_PER_LINE ? add(handle, lines, DO, 0, 1) : INVALID_ATTRIBUTE_VALUE;
}

int32 DAQmxCreateCICountEdgesChan(TaskHandle handle, const char *counter, const char *name, int32 edge,
                                  uInt32 initial, int32 direction)
{
    BEGIN("CreateCICountEdgesChan %s %d %u %d", counter, edge, initial, direction);
    TASK(handle);
    task->edges = 1;
    return add(handle, counter, CI, 0, 0);
}

int32 DAQmxCreateCIAngEncoderChan(TaskHandle handle, const char *counter, const char *name, int32 decoding,
                                  uInt32 index, float64 index_value, int32 index_phase, int32 units, uInt32 pulses,
                                  float64 initial, const char *scale)
{
    BEGIN("CreateCIAngEncoderChan %s %d %u %d", counter, decoding, index, units);
    return units == VAL_TICKS ? add(handle, counter, CI, 0, 0) : INVALID_ATTRIBUTE_VALUE;
}

int32 DAQmxCfgSampClkTiming(TaskHandle handle, const char *source, float64 rate, int32 edge, int32 mode,
                            uint64_t samples)
{
    BEGIN("CfgSampClkTiming %g %d", rate, mode);
    TASK(handle);
    if (mode != VAL_HW_TIMED_SINGLE_POINT || task->n == 0 || !task->channel[0].device->hardware_timed)
        return failure(INVALID_ATTRIBUTE_VALUE, "Requested value is not a supported value for this property.");
    task->hardware_timed = 1;
    task->period = 1.0 / rate;
    return OK;
}

int32 DAQmxSetRealTimeReportMissedSamp(TaskHandle handle, uInt32 report)
{
    BEGIN("SetRealTimeReportMissedSamp %u", report);
    TASK(handle);
    task->report_missed = report;
    return OK;
}

static int32 present(const struct task *task)
{
    for (int i = 0; i < task->n; i++) {
        struct device *d = task->channel[i].device;
        expire_if_due(d);
        if (!d->present)
            return failure(DEV_CANNOT_BE_ACCESSED,
                           "Device cannot be accessed.  Possible causes:\nDevice is no longer present in the system."
                           "\n\nDevice: %s", d->name);
    }
    return OK;
}

/* A line is the same terminal as input and as output. */
static int32 terminal(enum kind kind, int32 index) { return 100 * (kind == DO ? DI : kind) + index; }

int32 DAQmxStartTask(TaskHandle handle)
{
    TASK(handle);
    BEGIN("StartTask %d", task->number);
    if (task->kind == WATCHDOG) {
        if (!task->device->present)
            return failure(DRIVER_DEVICE_GUID_NOT_FOUND_ROUTING, "The specified device is not present.");
        if (task->device->watchdog_expired)
            return failure(CONFIG_FAILED_BECAUSE_WATCHDOG_EXPIRED, "The watchdog timer has expired.");
        for (struct task *t = tasks; t < tasks + 64; t++)
            if (t->used && t->running && t->channel[0].device == task->device)
                return failure(WATCHDOG_TIMER_FAILS_BECAUSE_OF_PROGRAMMED_IO, "Tasks of the device are running.");
        task->running = 1;
        task->device->watchdog_deadline = now() + task->timeout;
        return OK;
    }
    if (task->n == 0)
        return failure(CAN_NOT_PERFORM_OP_WHEN_NO_CHANS_IN_TASK, "The task has no channels.");
    int32 error = present(task);
    if (error != OK)
        return error;
    for (struct task *t = tasks; t < tasks + 64; t++)
        for (int i = 0; t != task && t->used && t->running && t->kind != WATCHDOG && i < t->n; i++)
            for (int k = 0; k < task->n; k++)
                if (t->channel[i].device == task->channel[k].device &&
                    terminal(t->kind, t->channel[i].index) == terminal(task->kind, task->channel[k].index))
                    return failure(PAL_RESOURCE_RESERVED, "The specified resource is reserved.");
    task->running = 1;
    task->next = now() + task->period;
    return OK;
}

int32 DAQmxStopTask(TaskHandle handle)
{
    TASK(handle);
    BEGIN("StopTask %d", task->number);
    task->running = 0;
    return OK;
}

static void sleep_until(float64 time)
{
    struct timespec t = {(time_t)time, (long)(1e9 * (time - floor(time)))};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* What every read begins with: plugged in, the delay that a test asks for, the wait for the sample clock. */
static int32 begin_read(struct task *task, float64 timeout)
{
    float64 delay = shared()->delay;
    int32 error = present(task);
    if (error != OK)
        return error;
    if (delay > 0.0) {
        sleep_until(now() + (delay < timeout ? delay : timeout));
        if (delay > timeout)
            return failure(SAMPLES_NOT_YET_AVAILABLE, "Some or all of the samples requested have not yet been acquired.");
    }
    if (!task->hardware_timed)
        return OK;
    float64 late = now() - task->next;
    if (late >= task->period) { /* at least one edge of the clock went by unread */
        task->next += task->period * ceil(late / task->period);
        if (task->report_missed)
            return failure(WAIT_FOR_NEXT_SAMP_CLK_DETECTED_MISSED_SAMP_CLK, "A sample clock was missed.");
    }
    sleep_until(task->next);
    task->next += task->period;
    return OK;
}

int32 DAQmxReadAnalogF64(TaskHandle handle, int32 samples, float64 timeout, int32 fill, float64 values[], uInt32 size,
                         int32 *read, uInt32 *reserved)
{
    TASK(handle);
    BEGIN("ReadAnalogF64 %d", task->number);
    int32 error = begin_read(task, timeout);
    if (error != OK)
        return error;
    if (size < (uInt32)task->n)
        return failure(READ_BUFFER_TOO_SMALL, "Buffer is too small to fit read data.");
    for (int i = 0; i < task->n; i++)
        values[i] = task->channel[i].device->value[AI][task->channel[i].index];
    *read = 1;
    return OK;
}

int32 DAQmxReadDigitalLines(TaskHandle handle, int32 samples, float64 timeout, int32 fill, uint8_t values[],
                            uInt32 size, int32 *read, int32 *bytes, uInt32 *reserved)
{
    TASK(handle);
    BEGIN("ReadDigitalLines %d", task->number);
    int32 error = begin_read(task, timeout);
    if (error != OK)
        return error;
    if (size < (uInt32)task->n)
        return failure(READ_BUFFER_TOO_SMALL, "Buffer is too small to fit read data.");
    for (int i = 0; i < task->n; i++)
        values[i] = task->channel[i].device->value[DI][task->channel[i].index] != 0.0;
    *read = *bytes = 1;
    return OK;
}

/* Scaled values are read as F64, counted edges as U32. */
static int32 read_counter(struct task *task, float64 timeout, int32 edges, float64 *value)
{
    if (task->edges != edges)
        return failure(INVALID_ATTRIBUTE_VALUE, "This read is not for this kind of counter channel.");
    int32 error = begin_read(task, timeout);
    if (error == OK)
        *value = task->channel[0].device->value[CI][task->channel[0].index];
    return error;
}

int32 DAQmxReadCounterScalarF64(TaskHandle handle, float64 timeout, float64 *value, uInt32 *reserved)
{
    TASK(handle);
    BEGIN("ReadCounterScalarF64 %d", task->number);
    return read_counter(task, timeout, 0, value);
}

int32 DAQmxReadCounterScalarU32(TaskHandle handle, float64 timeout, uInt32 *value, uInt32 *reserved)
{
    TASK(handle);
    BEGIN("ReadCounterScalarU32 %d", task->number);
    float64 count = 0.0;
    int32 error = read_counter(task, timeout, 1, &count);
    *value = (uInt32)count;
    return error;
}

static int32 begin_write(struct task *task, uInt32 auto_start)
{
    int32 error = present(task);
    if (error != OK)
        return error;
    if (!task->running && !auto_start)
        return failure(CANNOT_WRITE_WHEN_AUTO_START_FALSE_AND_TASK_NOT_RUNNING, "The task is not started.");
    for (int i = 0; i < task->n; i++)
        if (task->channel[i].device->watchdog_expired)
            return failure(WRITE_FAILED_BECAUSE_WATCHDOG_EXPIRED, "The watchdog timer has expired.\n\nDevice: %s",
                           task->channel[i].device->name);
    return OK;
}

int32 DAQmxWriteAnalogF64(TaskHandle handle, int32 samples, uInt32 auto_start, float64 timeout, int32 layout,
                          const float64 values[], int32 *written, uInt32 *reserved)
{
    TASK(handle);
    BEGIN("WriteAnalogF64 %d", task->number);
    int32 error = begin_write(task, auto_start);
    for (int i = 0; error == OK && i < task->n; i++)
        if (!(values[i] >= task->minimum[i] && values[i] <= task->maximum[i]))
            return failure(INVALID_AO_DATA_WRITE, "Data to be written is too large or too small: %g", values[i]);
    for (int i = 0; error == OK && i < task->n; i++) {
        struct channel c = task->channel[i];
        c.device->value[AO][c.index] = values[i];
        note("write %s/ao%d %.17g", c.device->name, c.index, values[i]);
    }
    *written = 1;
    return error;
}

int32 DAQmxWriteDigitalLines(TaskHandle handle, int32 samples, uInt32 auto_start, float64 timeout, int32 layout,
                             const uint8_t values[], int32 *written, uInt32 *reserved)
{
    TASK(handle);
    BEGIN("WriteDigitalLines %d", task->number);
    int32 error = begin_write(task, auto_start);
    for (int i = 0; error == OK && i < task->n; i++) {
        struct channel c = task->channel[i];
        c.device->value[DO][c.index] = values[i];
        note("write %s/port0/line%d %d", c.device->name, c.index, values[i]);
    }
    *written = 1;
    return error;
}

/* --- watchdog, power-up states ----------------------------------------------------------------------------------- */

int32 DAQmxCreateWatchdogTimerTaskEx(const char *device, const char *name, TaskHandle *handle, float64 timeout)
{
    BEGIN("CreateWatchdogTimerTaskEx %s %g", device, timeout);
    struct device *d = device_named(device, strlen(device));
    if (d == NULL)
        return failure(INVALID_DEVICE_ID, "Device identifier is invalid.\n\nDevice Specified: %s", device);
    if (!d->watchdog)
        return failure(WATCHDOG_TIMER_NOT_SUPPORTED, "Watchdog timer is not supported on this device.");
    int32 error = new_task(handle, WATCHDOG);
    if (error == OK) {
        task_of(*handle)->device = d;
        task_of(*handle)->timeout = timeout;
        for (int i = 0; i < CHANNELS; i++)
            d->expiration[AO][i] = d->expiration[DO][i] = NAN;
    }
    return error;
}

static int32 set_expiration(const char *names, enum kind kind, const float64 *numbers, const int32 *levels, uInt32 size)
{
    struct channel channel[CHANNELS];
    int32 n, error = find_all(names, kind, channel, &n);
    if (error == OK && n != (int32)size)
        return failure(INVALID_ATTRIBUTE_VALUE, "%d channels and %u states.", n, size);
    for (int i = 0; error == OK && i < n; i++)
        channel[i].device->expiration[kind][channel[i].index] = numbers ? numbers[i] : levels[i] == VAL_HIGH;
    return error;
}

int32 DAQmxCfgWatchdogAOExpirStates(TaskHandle handle, const char *names, const float64 states[], const int32 types[],
                                    uInt32 size)
{
    BEGIN("CfgWatchdogAOExpirStates %s", names);
    return set_expiration(names, AO, states, NULL, size);
}

int32 DAQmxCfgWatchdogDOExpirStates(TaskHandle handle, const char *names, const int32 states[], uInt32 size)
{
    BEGIN("CfgWatchdogDOExpirStates %s", names);
    return set_expiration(names, DO, NULL, states, size);
}

int32 DAQmxControlWatchdogTask(TaskHandle handle, int32 action)
{
    BEGIN("ControlWatchdogTask %d", action);
    TASK(handle);
    if (!task->device->present)
        return failure(DEV_CANNOT_BE_ACCESSED, "Device cannot be accessed.");
    expire_if_due(task->device);
    if (action == WATCHDOG_CLEAR_EXPIRATION)
        task->device->watchdog_expired = 0;
    else if (task->device->watchdog_expired)
        return failure(CANT_RESET_EXPIRED_WATCHDOG, "An expired watchdog timer cannot be reset.");
    task->device->watchdog_deadline = now() + task->timeout;
    return OK;
}

int32 DAQmxResetDevice(const char *device)
{
    BEGIN("ResetDevice %s", device);
    struct device *d = device_named(device, strlen(device));
    if (d == NULL || !d->present)
        return failure(INVALID_DEVICE_ID, "Device identifier is invalid.");
    for (struct task *t = tasks; t < tasks + 64; t++)
        if (t->used && t->kind != WATCHDOG && t->n > 0 && t->channel[0].device == d)
            t->running = 0;
    power_up(d);
    return OK;
}

int32 DAQmxGetAnalogPowerUpStatesWithOutputType(const char *names, float64 states[], int32 types[], uInt32 *size)
{
    BEGIN("GetAnalogPowerUpStatesWithOutputType %s", names);
    struct channel channel[CHANNELS];
    int32 n, error = find_all(names, AO, channel, &n);
    for (int i = 0; error == OK && i < n; i++) {
        states[i] = channel[i].device->power_up[AO][channel[i].index];
        types[i] = 0;
    }
    return error;
}

int32 DAQmxSetAnalogPowerUpStatesWithOutputType(const char *names, const float64 states[], const int32 types[],
                                                uInt32 size)
{
    BEGIN("SetAnalogPowerUpStatesWithOutputType %s", names);
    struct channel channel[CHANNELS];
    int32 n, error = find_all(names, AO, channel, &n);
    for (int i = 0; error == OK && i < n; i++)
        channel[i].device->power_up[AO][channel[i].index] = states[i];
    return error;
}

int32 DAQmxGetDigitalPowerUpStates(const char *device, ...)
{
    BEGIN("GetDigitalPowerUpStates %s", device);
    va_list arguments;
    va_start(arguments, device);
    int32 error = OK;
    for (const char *name; error == OK && (name = va_arg(arguments, const char *)) != NULL;) {
        struct channel channel;
        int32 *level = va_arg(arguments, int32 *);
        error = find(name, DO, &channel);
        if (error == OK)
            *level = channel.device->power_up[DO][channel.index] != 0.0 ? VAL_HIGH : VAL_LOW;
    }
    va_end(arguments);
    return error;
}

int32 DAQmxSetDigitalPowerUpStates(const char *device, ...)
{
    BEGIN("SetDigitalPowerUpStates %s", device);
    va_list arguments;
    va_start(arguments, device);
    int32 error = OK;
    for (const char *name; error == OK && (name = va_arg(arguments, const char *)) != NULL;) {
        struct channel channel;
        int32 level = va_arg(arguments, int32);
        error = find(name, DO, &channel);
        if (error == OK)
            channel.device->power_up[DO][channel.index] = level == VAL_HIGH;
    }
    va_end(arguments);
    return error;
}

/* --- what there is ------------------------------------------------------------------------------------------------- */

/* As the real one: without a buffer, the size that it needs. */
static int32 give_text(const char *text, char *buffer, uInt32 size)
{
    if (size == 0)
        return (int32)strlen(text) + 1;
    if (size <= strlen(text))
        return BUFFER_TOO_SMALL_FOR_STRING;
    strcpy(buffer, text);
    return OK;
}

static int32 give_channels(const struct device *d, enum kind kind, char *buffer, uInt32 size)
{
    char text[CHANNELS * 40] = "";
    for (int i = 0; i < d->count[kind]; i++)
        sprintf(text + strlen(text), "%s%s/%s%d", i ? ", " : "", d->name, prefixes[kind], i);
    return give_text(text, buffer, size);
}

static int32 give_numbers(const int32 *numbers, int32 n, void *buffer, uInt32 size)
{
    if (n == 0)
        return failure(ATTRIBUTE_NOT_SUPPORTED_IN_TASK_CONTEXT, "Attribute not supported by the device.");
    if (size == 0)
        return n;
    memcpy(buffer, numbers, n * sizeof *numbers);
    return OK;
}

int32 DAQmxGetSystemInfoAttribute(int32 attribute, ...)
{
    BEGIN("GetSystemInfoAttribute %x", attribute);
    va_list arguments;
    va_start(arguments, attribute);
    int32 error = OK;
    if (attribute == 0x193B) {
        char text[DEVICES * 20] = "";
        for (struct device *d = shared()->device; d < shared()->device + DEVICES; d++)
            if (d->name[0] != 0) {
                strcat(text, text[0] ? ", " : "");
                strcat(text, d->name);
            }
        char *buffer = va_arg(arguments, char *);
        error = give_text(text, buffer, va_arg(arguments, uInt32));
    } else {
        *va_arg(arguments, uInt32 *) = attribute == 0x1272 ? 26 : 0; /* version 26.0.0 */
    }
    va_end(arguments);
    return error;
}

int32 DAQmxGetDeviceAttribute(const char *device, int32 attribute, ...)
{
    BEGIN("GetDeviceAttribute %s %x", device, attribute);
    struct device *d = device_named(device, strlen(device));
    if (d == NULL)
        return failure(INVALID_DEVICE_ID, "Device identifier is invalid.\n\nDevice Specified: %s", device);
    if (!d->present)
        return failure(DRIVER_DEVICE_GUID_NOT_FOUND_ROUTING, "The specified device is not present or is not active.");
    va_list arguments;
    va_start(arguments, attribute);
    void *buffer = va_arg(arguments, void *);
    uInt32 size = attribute == 0x632 ? 0 : va_arg(arguments, uInt32);
    va_end(arguments);
    static const int32 modes[] = {VAL_FINITE, VAL_CONTINUOUS, VAL_HW_TIMED_SINGLE_POINT};
    static const int32 voltage = VAL_VOLTAGE, current = VAL_CURRENT;
    switch (attribute) {
    case 0x631: return give_text(d->product, buffer, size);
    case 0x632: *(uInt32 *)buffer = 0x01234567; return OK;
    case 0x231E: return give_channels(d, AI, buffer, size);
    case 0x231F: return give_channels(d, AO, buffer, size);
    case 0x2320: return give_channels(d, DI, buffer, size);
    case 0x2322: return give_channels(d, DO, buffer, size);
    case 0x2324: return give_channels(d, CI, buffer, size);
    case 0x2FD2: return give_numbers(d->current ? &current : &voltage, d->count[AI] > 0, buffer, size);
    case 0x2FD3: return give_numbers(d->current ? &current : &voltage, d->count[AO] > 0, buffer, size);
    case 0x2FDC: return give_numbers(modes, d->count[AI] == 0 ? 0 : d->hardware_timed ? 3 : 2, buffer, size);
    default: return failure(ATTRIBUTE_NOT_SUPPORTED_IN_TASK_CONTEXT, "The fake knows no attribute 0x%x.", attribute);
    }
}

int32 DAQmxGetTaskAttribute(TaskHandle handle, int32 attribute, ...)
{
    BEGIN("GetTaskAttribute %x", attribute);
    TASK(handle);
    if (attribute != 0x1276)
        return failure(ATTRIBUTE_NOT_SUPPORTED_IN_TASK_CONTEXT, "The fake knows no attribute 0x%x.", attribute);
    char text[32];
    sprintf(text, "_unnamedTask<%d>", task->number);
    va_list arguments;
    va_start(arguments, attribute);
    char *buffer = va_arg(arguments, char *);
    int32 error = give_text(text, buffer, va_arg(arguments, uInt32));
    va_end(arguments);
    return error;
}

int32 DAQmxGetExtendedErrorInfo(char *buffer, uInt32 size)
{
    snprintf(buffer, size, "%s", last_error);
    return OK;
}

int32 DAQmxGetErrorString(int32 code, char *buffer, uInt32 size)
{
    snprintf(buffer, size, "Error %d.", code);
    return OK;
}
