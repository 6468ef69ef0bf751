/* The functions of FMI 2.0.4. Declared here is what of the standard's interface they need. */
#include "instance.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    void (*logger)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(size_t, size_t);
    void (*release)(void *);
    void (*step_finished)(void *, int);
    void *environment;
} Callbacks;

typedef struct {
    int new_discrete_states_needed, terminate, nominals_changed, values_changed, next_event_defined;
    double next_event;
} EventInfo;

enum { CO_SIMULATION = 1 };
static const char CATEGORY[] = "logStatusError";

static void send(const Instance *s, int status, const char *text) {
    void (*logger)(void *, const char *, int, const char *, const char *, ...);
    memcpy(&logger, &s->logger, sizeof logger);
    if (logger != NULL) logger(s->environment, s->name == NULL ? "" : s->name, status, CATEGORY, text);
}

/* --- paths ----------------------------------------------------------------------------------------------------------- */

static int hexadecimal(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The path of a file URI (RFC 8089), or of what is a path already, in new memory. */
static char *path_of(const char *uri) {
    if (uri == NULL) return NULL;
    const char *from = uri;
    if (strncmp(uri, "file:", 5) == 0) {
        from += 5;
        if (strncmp(from, "//", 2) == 0) {
            from += 2;
            while (*from != '\0' && *from != '/') from++; /* the host */
        }
    }
    char *path = malloc(strlen(from) + 1), *to = path;
    if (path == NULL) return NULL;
    while (*from != '\0') {
        int high = from == uri || *from != '%' ? -1 : hexadecimal(from[1]);
        int low = high < 0 ? -1 : hexadecimal(from[2]);
        *to++ = low < 0 ? *from : (char)(16 * high + low);
        from += low < 0 ? 1 : 3;
    }
    *to = '\0';
    return path;
}

/* --- life of an instance --------------------------------------------------------------------------------------------- */

EXPORT const char *fmi2GetTypesPlatform(void) { return "default"; }

EXPORT const char *fmi2GetVersion(void) { return "2.0"; }

EXPORT void *fmi2Instantiate(const char *name, int type, const char *guid, const char *resources,
                             const Callbacks *functions, int visible, int logging) {
    if (functions == NULL) return NULL;
    void *logger;
    memcpy(&logger, &functions->logger, sizeof logger);
    char *folder = path_of(resources);
    Instance *s = instance_new(name, guid, folder, functions->environment, logger, send);
    free(folder);
    return type == CO_SIMULATION ? s : for_exchange(s);
}

EXPORT void fmi2FreeInstance(Instance *s) { instance_free(s); }

EXPORT int fmi2SetDebugLogging(Instance *s, int logging, size_t n, const char *const categories[]) {
    if (!allowed(s, "fmi2SetDebugLogging", ANY_PHASE)) return ERROR;
    return n > 0 && categories == NULL ? refuse(s, "a null pointer was given for the categories.") : OK;
}

EXPORT int fmi2SetupExperiment(Instance *s, int has_tolerance, double tolerance, double from, int has_stop,
                               double stop) {
    if (!allowed(s, "fmi2SetupExperiment", INSTANTIATED)) return ERROR;
    if (has_stop && !(stop >= from)) return refuse(s, "the stop time %g s is before the start, %g s.", stop, from);
    return start(s, from);
}

EXPORT int fmi2EnterInitializationMode(Instance *s) {
    if (!allowed(s, "fmi2EnterInitializationMode", INSTANTIATED)) return ERROR;
    s->phase = INITIALIZATION;
    return OK;
}

EXPORT int fmi2ExitInitializationMode(Instance *s) {
    if (!allowed(s, "fmi2ExitInitializationMode", INITIALIZATION)) return ERROR;
    s->phase = s->is_exchange ? EVENT : STEP;
    return begin(s);
}

EXPORT int fmi2Terminate(Instance *s) {
    if (!allowed(s, "fmi2Terminate", RUNNING | FAILED)) return ERROR;
    s->phase = TERMINATED;
    return OK;
}

EXPORT int fmi2Reset(Instance *s) {
    if (!allowed(s, "fmi2Reset", ANY_PHASE)) return ERROR;
    instance_reset(s);
    return OK;
}

/* --- variables ------------------------------------------------------------------------------------------------------- */

EXPORT int fmi2GetReal(Instance *s, const uint32_t *references, size_t n, double *values) {
    return allowed(s, "fmi2GetReal", ANY_PHASE) ? get_values(s, references, n, values) : ERROR;
}

EXPORT int fmi2SetReal(Instance *s, const uint32_t *references, size_t n, const double *values) {
    if (!allowed(s, "fmi2SetReal", INSTANTIATED | INITIALIZATION | RUNNING)) return ERROR;
    return set_values(s, references, n, values);
}

/* All variables are real numbers. */
static int none(const Instance *s, const char *function, size_t n) {
    if (!allowed(s, function, ANY_PHASE)) return ERROR;
    return n == 0 ? OK : refuse(s, "%s: all variables of this FMU are real numbers.", function);
}

#define NONE(name, type)                                                                                              \
    EXPORT int name(Instance *s, const uint32_t *references, size_t n, type values) {                                 \
        return none(s, #name, n);                                                                                     \
    }

NONE(fmi2GetInteger, int *)
NONE(fmi2GetBoolean, int *)
NONE(fmi2GetString, const char **)
NONE(fmi2SetInteger, const int *)
NONE(fmi2SetBoolean, const int *)
NONE(fmi2SetString, const char *const *)

/* --- the state as a whole -------------------------------------------------------------------------------------------- */

EXPORT int fmi2GetFMUstate(Instance *s, void **state) {
    return allowed(s, "fmi2GetFMUstate", ANY_PHASE) ? snapshot_get(s, state) : ERROR;
}

EXPORT int fmi2SetFMUstate(Instance *s, const void *state) {
    return allowed(s, "fmi2SetFMUstate", ANY_PHASE) ? snapshot_set(s, state) : ERROR;
}

EXPORT int fmi2FreeFMUstate(Instance *s, void **state) {
    if (!allowed(s, "fmi2FreeFMUstate", ANY_PHASE)) return ERROR;
    if (state == NULL) return refuse(s, "a null pointer was given for the state.");
    free(*state);
    *state = NULL;
    return OK;
}

EXPORT int fmi2SerializedFMUstateSize(Instance *s, const void *state, size_t *size) {
    if (!allowed(s, "fmi2SerializedFMUstateSize", ANY_PHASE)) return ERROR;
    if (state == NULL || size == NULL) return refuse(s, "a null pointer was given for the state or its size.");
    *size = snapshot_size(s);
    return OK;
}

EXPORT int fmi2SerializeFMUstate(Instance *s, const void *state, char *bytes, size_t size) {
    return allowed(s, "fmi2SerializeFMUstate", ANY_PHASE) ? snapshot_write(s, state, bytes, size) : ERROR;
}

EXPORT int fmi2DeSerializeFMUstate(Instance *s, const char *bytes, size_t size, void **state) {
    return allowed(s, "fmi2DeSerializeFMUstate", ANY_PHASE) ? snapshot_read(s, bytes, size, state) : ERROR;
}

/* --- co-simulation --------------------------------------------------------------------------------------------------- */

EXPORT int fmi2DoStep(Instance *s, double from, double length, int no_earlier_state) {
    if (!allowed(s, "fmi2DoStep", STEP)) return ERROR;
    return do_step(s, from, length);
}

EXPORT int fmi2CancelStep(Instance *s) {
    if (!allowed(s, "fmi2CancelStep", ANY_PHASE)) return ERROR;
    return refuse(s, "fmi2CancelStep: no step is under way; steps are not asynchronous.");
}

EXPORT int fmi2SetRealInputDerivatives(Instance *s, const uint32_t *references, size_t n, const int *orders,
                                       const double *values) {
    if (!allowed(s, "fmi2SetRealInputDerivatives", ANY_PHASE)) return ERROR;
    return refuse(s, "fmi2SetRealInputDerivatives: inputs are held during a step.");
}

EXPORT int fmi2GetRealOutputDerivatives(Instance *s, const uint32_t *references, size_t n, const int *orders,
                                        double *values) {
    if (!allowed(s, "fmi2GetRealOutputDerivatives", ANY_PHASE)) return ERROR;
    return refuse(s, "fmi2GetRealOutputDerivatives: this FMU gives no derivatives of its outputs.");
}

EXPORT int fmi2GetDirectionalDerivative(Instance *s, const uint32_t *unknowns, size_t n, const uint32_t *knowns,
                                        size_t n_knowns, const double *seed, double *values) {
    if (!allowed(s, "fmi2GetDirectionalDerivative", ANY_PHASE)) return ERROR;
    return refuse(s, "fmi2GetDirectionalDerivative: this FMU gives no directional derivatives.");
}

static int no_status(const Instance *s, const char *function) {
    if (!allowed(s, function, ANY_PHASE)) return ERROR;
    refuse(s, "%s: steps are not asynchronous, so there is no status of one.", function);
    return DISCARD;
}

EXPORT int fmi2GetStatus(Instance *s, int kind, int *value) {
    return no_status(s, "fmi2GetStatus");
}

EXPORT int fmi2GetRealStatus(Instance *s, int kind, double *value) {
    enum { LAST_SUCCESSFUL_TIME = 2 };
    if (kind != LAST_SUCCESSFUL_TIME || value == NULL) return no_status(s, "fmi2GetRealStatus");
    if (!allowed(s, "fmi2GetRealStatus", STEP | TERMINATED | FAILED)) return ERROR;
    *value = s->row[s->header->n_states];
    return OK;
}

EXPORT int fmi2GetIntegerStatus(Instance *s, int kind, int *value) {
    return no_status(s, "fmi2GetIntegerStatus");
}

EXPORT int fmi2GetBooleanStatus(Instance *s, int kind, int *value) {
    enum { TERMINATED_BY_ITSELF = 3 };
    if (kind != TERMINATED_BY_ITSELF || value == NULL) return no_status(s, "fmi2GetBooleanStatus");
    if (!allowed(s, "fmi2GetBooleanStatus", STEP | TERMINATED | FAILED)) return ERROR;
    *value = 0;
    return OK;
}

EXPORT int fmi2GetStringStatus(Instance *s, int kind, const char **value) {
    return no_status(s, "fmi2GetStringStatus");
}

/* --- model exchange -------------------------------------------------------------------------------------------------- */

EXPORT int fmi2EnterEventMode(Instance *s) {
    if (!allowed(s, "fmi2EnterEventMode", EXCHANGE)) return ERROR;
    s->phase = EVENT;
    return OK;
}

EXPORT int fmi2EnterContinuousTimeMode(Instance *s) {
    if (!allowed(s, "fmi2EnterContinuousTimeMode", EVENT)) return ERROR;
    s->phase = CONTINUOUS;
    return OK;
}

EXPORT int fmi2NewDiscreteStates(Instance *s, EventInfo *info) {
    if (!allowed(s, "fmi2NewDiscreteStates", EVENT)) return ERROR;
    if (info == NULL) return refuse(s, "a null pointer was given for the event.");
    info->new_discrete_states_needed = info->terminate = info->nominals_changed = 0;
    return handle_event(s, &info->values_changed, &info->next_event_defined, &info->next_event);
}

EXPORT int fmi2CompletedIntegratorStep(Instance *s, int no_earlier_state, int *has_event, int *terminate) {
    if (!allowed(s, "fmi2CompletedIntegratorStep", CONTINUOUS)) return ERROR;
    if (has_event == NULL || terminate == NULL) return refuse(s, "a null pointer was given for the event.");
    *has_event = needs_event(s), *terminate = 0;
    return OK;
}

EXPORT int fmi2SetTime(Instance *s, double time) {
    return allowed(s, "fmi2SetTime", EXCHANGE) ? set_time(s, time) : ERROR;
}

EXPORT int fmi2SetContinuousStates(Instance *s, const double *states, size_t n) {
    return allowed(s, "fmi2SetContinuousStates", CONTINUOUS) ? set_states(s, states, n) : ERROR;
}

EXPORT int fmi2GetContinuousStates(Instance *s, double *states, size_t n) {
    return allowed(s, "fmi2GetContinuousStates", ANY_PHASE) ? get_states(s, states, n) : ERROR;
}

EXPORT int fmi2GetDerivatives(Instance *s, double *derivatives, size_t n) {
    return allowed(s, "fmi2GetDerivatives", EXCHANGE | INITIALIZATION) ? get_derivatives(s, derivatives, n) : ERROR;
}

EXPORT int fmi2GetNominalsOfContinuousStates(Instance *s, double *nominals, size_t n) {
    return allowed(s, "fmi2GetNominalsOfContinuousStates", ANY_PHASE) ? get_nominals(s, nominals, n) : ERROR;
}

EXPORT int fmi2GetEventIndicators(Instance *s, double *indicators, size_t n) {
    if (!allowed(s, "fmi2GetEventIndicators", ANY_PHASE)) return ERROR;
    return n == 0 ? OK : refuse(s, "this FMU has no event indicators.");
}
