/* A device that a process of its own reads and writes, through shared memory (hilserver/realtime/worker.py).

   The worker's segment is named RIG-DEVICE; its shape is the number of inputs and of outputs. It consists of a line
   with the state (the worker's process; the number of the latest command at which the device had its safe values), a
   line with the worker's heartbeat, a ring of samples and a ring of commands.
   - sample: number of failures so far; raw value of each input; time of each, s; raw value of each output as the device
     has confirmed it; time of the command with which it came, s;
   - command: time, s; 1 to write these values, 2 to write the safe ones; raw value of each output.
   All times are of CLOCK_MONOTONIC: a sample whose time is none, or is in the future, counts as none. */
#include "runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64, ROWS = 64, WRITE = 1, MAKE_SAFE = 2, VALUES = 2, MADE_SAFE = 1 };
static const double AHEAD = 0.1; /* s, by which a time may be in the future: it is another clock's otherwise */

/* Create the memory of a device. The worker attaches to it when it starts. */
int device_open(Device *device, const Loop *loop, const Worker *place) {
    const int64_t shape[4] = {place->n_inputs, place->n_outputs};
    int64_t width = 1 + 2 * place->n_inputs + 2 * place->n_outputs, values = VALUES + place->n_outputs;
    char name[256];
    const Pack *pack = &loop->pack;
    snprintf(name, sizeof name, "%s-%s", text_of(pack, pack->head->name), text_of(pack, place->name));
    device->place = place;
    device->outputs = cells_of(pack, place->outputs);
    device->commanded_at = now();
    if ((device->sample = calloc((size_t)width, CELL)) == NULL) return refuse("%s: there is no memory", name);
    if (!segment_create(&device->segment, name, 2 * LINE + ring_size(width, ROWS) + ring_size(values, ROWS), shape))
        return 0;
    char *memory = device->segment.memory + LINE;
    device->state = (int64_t *)memory;
    device->samples = ring_on(memory + 2 * LINE, width, ROWS);
    device->commands = ring_on(memory + 2 * LINE + ring_size(width, ROWS), values, ROWS);
    return 1;
}

/* The age of what has this time, s. */
static double age_of(double time, double present) {
    double age = present - time;
    if (!(age >= -AHEAD)) return (double)INFINITY;
    return age > 0.0 ? age : 0.0;
}

/* Fill the raw readings of the row, their ages, the confirmed outputs, and the number of failures. */
void device_read(Device *device, Loop *loop) {
    const Head *h = loop->pack.head;
    const Worker *w = device->place;
    double *raw = loop->row + h->raw + w->first_slot, *age = loop->row + h->age + w->first_slot;
    double *confirmed = loop->row + h->confirmed + w->first_output;
    double *confirmed_age = loop->row + h->confirmed_age + w->first_output;
    int is_there = ring_latest(&device->samples, device->sample) >= 0;
    const double *values = device->sample + 1, *times = values + w->n_inputs, *known = times + w->n_inputs;
    double time = now();
    for (int64_t i = 0; i < w->n_inputs; i++) {
        raw[i] = is_there ? values[i] : (double)NAN;
        age[i] = is_there ? age_of(times[i], time) : (double)INFINITY;
    }
    for (int64_t i = 0; i < w->n_outputs; i++) {
        confirmed[i] = is_there ? known[i] : (double)NAN;
        confirmed_age[i] = is_there ? device->commanded_at - known[w->n_outputs + i] : (double)INFINITY;
    }
    loop->row[w->error_column] = is_there ? device->sample[0] : 0.0;
}

/* Pass the raw outputs of the row to the worker. */
void device_write(Device *device, Loop *loop) {
    double *command = ring_slot(&device->commands);
    device->commanded_at = command[0] = now();
    command[1] = WRITE;
    for (int64_t i = 0; i < device->place->n_outputs; i++) command[VALUES + i] = loop->row[device->outputs[i]];
    ring_publish(&device->commands);
}

/* Request the safe values. Also called while a signal is handled. */
void device_request_safe(Device *device) {
    double *command = ring_slot(&device->commands);
    memset(command, 0, (size_t)device->commands.width * CELL);
    command[0] = now();
    command[1] = MAKE_SAFE;
    ring_publish(&device->commands);
}

/* Wait for a second until the device has the safe values that were requested. */
int device_is_safe(Device *device) {
    const struct timespec pause = {.tv_nsec = 5000000};
    for (int i = 0; i < 200; i++) {
        if (load(&device->state[MADE_SAFE]) >= *device->commands.published) return 1;
        nanosleep(&pause, NULL);
    }
    return refuse("%s: its worker does not confirm the safe values. Switch the hydraulic supply off at the machine, "
                  "then check worker, device and cable", device->segment.path);
}

void device_close(Device *device) {
    segment_close(&device->segment);
    free(device->sample);
}
