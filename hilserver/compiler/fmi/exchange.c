/* Model exchange: the importer integrates. A circuit without mechanisms is given by the derivatives of its states, by
   sampled components, which are evaluated at fixed times, and by states with hard limits. */
#include "instance.h"

#include <math.h>
#include <string.h>

extern int32_t hilserver_derivatives(int64_t *frame);
extern int32_t hilserver_evaluate_sampled(int64_t *frame);

static int run(Instance *s, int32_t (*function)(int64_t *)) {
    int64_t frame[FRAME_CELLS];
    if (function(fill_frame(s, frame)) != 0) return refuse(s, "the compiled circuit failed.");
    return OK;
}

/* Derivatives of all states at the present values and inputs, into the first cells of the scratch space. The row stays
   as it is: in co-simulation its results are those of the step. */
int rate(Instance *s) {
    size_t size = (size_t)s->header->n_row * sizeof(double);
    if (s->has_rates) return OK;
    memcpy(s->kept, s->row, size);
    int status = run(s, hilserver_derivatives);
    memcpy(s->row, s->kept, size);
    s->has_rates = status == OK;
    return status;
}

static int is_array(const Instance *s, const void *values, size_t n) {
    if (n == (size_t)s->header->n_states && (values != NULL || n == 0)) return 1;
    refuse(s, "%zu states were expected, %zu given%s.", (size_t)s->header->n_states, n, values ? "" : " as a null pointer");
    return 0;
}

int set_time(Instance *s, double time) {
    if (!isfinite(time)) return refuse(s, "%g s is not a time.", time);
    s->row[s->header->n_states] = time;
    touch(s);
    return OK;
}

int set_states(Instance *s, const double *states, size_t n) {
    if (!is_array(s, states, n)) return ERROR;
    memcpy(s->row, states, n * sizeof(double));
    touch(s);
    return OK;
}

int get_states(Instance *s, double *states, size_t n) {
    if (!is_array(s, states, n)) return ERROR;
    memcpy(states, s->row, n * sizeof(double));
    return OK;
}

int get_derivatives(Instance *s, double *derivatives, size_t n) {
    if (!is_array(s, derivatives, n) || rate(s) != OK) return ERROR;
    memcpy(derivatives, s->work, n * sizeof(double));
    for (size_t i = 0; i < n; i++)
        if (!isfinite(derivatives[i])) return DISCARD; /* the importer tries a shorter step */
    return OK;
}

int get_nominals(const Instance *s, double *nominals, size_t n) {
    if (!is_array(s, nominals, n)) return ERROR;
    memcpy(nominals, s->value + s->header->scale, n * sizeof(double));
    return OK;
}

/* The nearest value within the hard limits of a state. */
static double limited(const Instance *s, int64_t i) {
    return fmin(fmax(s->row[i], s->value[s->header->lower + i]), s->value[s->header->upper + i]);
}

/* After a step of the importer: whether a state is beyond a hard limit, which needs an event. */
int needs_event(const Instance *s) {
    for (int64_t i = 0; i < s->header->n_states; i++)
        if (s->row[i] != limited(s, i)) return 1;
    return 0;
}

/* An event: limit the states, and evaluate the sampled components if it is time. `*changed`: whether states have. */
int handle_event(Instance *s, int *changed, int *has_next, double *next) {
    const Header *h = s->header;
    double now = s->row[h->n_states], step = h->tick / (double)h->substeps, before;
    *changed = 0, *has_next = h->n_sampled > 0;
    for (int64_t i = 0; i < h->n_states; i++)
        if ((before = s->row[i]) != limited(s, i)) s->row[i] = limited(s, i), *changed = 1, touch(s);
    if (*has_next && !(now < *s->due - 1e-6 * step)) {
        if (refresh(s) != OK) return ERROR; /* signals follow from the inputs */
        double sum = 0.0, after = 0.0;
        for (int64_t i = 0; i < h->n_states; i++) sum += s->row[i];
        if (run(s, hilserver_evaluate_sampled) != OK) return ERROR;
        for (int64_t i = 0; i < h->n_states; i++) after += s->row[i];
        if (after != sum) *changed = 1;
        *s->due = now + step;
        touch(s);
    }
    *next = *s->due;
    return OK;
}
