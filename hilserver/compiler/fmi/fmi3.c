/* The functions of FMI 3.0.2. Declared here is what of the standard's interface they need. */
#include "instance.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef void Logger(void *environment, int status, const char *category, const char *text);

static void send(const Instance *s, int status, const char *text) {
    Logger *logger;
    memcpy(&logger, &s->logger, sizeof logger);
    if (logger != NULL) logger(s->environment, status, "logStatusError", text);
}

/* --- life of an instance --------------------------------------------------------------------------------------------- */

EXPORT const char *fmi3GetVersion(void) { return "3.0"; }

static Instance *instantiate(const char *name, const char *token, const char *folder, void *environment,
                             Logger *logger, const char *problem) {
    void *kept;
    memcpy(&kept, &logger, sizeof kept);
    Instance *s = instance_new(name, token, folder, environment, kept, send);
    if (s == NULL || problem == NULL) return s;
    refuse(s, "%s", problem);
    instance_free(s);
    return NULL;
}

EXPORT void *fmi3InstantiateCoSimulation(const char *name, const char *token, const char *folder, bool visible,
                                         bool logging, bool with_events, bool early_return,
                                         const uint32_t *intermediate, size_t n_intermediate, void *environment,
                                         Logger *logger, void *intermediate_update) {
    const char *problem = with_events ? "this FMU has no event mode: it must be used without." : NULL;
    return instantiate(name, token, folder, environment, logger, problem);
}

EXPORT void *fmi3InstantiateModelExchange(const char *name, const char *token, const char *folder, bool visible,
                                          bool logging, void *environment, Logger *logger) {
    return for_exchange(instantiate(name, token, folder, environment, logger, NULL));
}

EXPORT void *fmi3InstantiateScheduledExecution(const char *name, const char *token, const char *folder, bool visible,
                                               bool logging, void *environment, Logger *logger, void *clock_update,
                                               void *lock, void *unlock) {
    const char *problem = "this FMU can't be used for scheduled execution.";
    return instantiate(name, token, folder, environment, logger, problem);
}

EXPORT void fmi3FreeInstance(Instance *s) { instance_free(s); }

EXPORT int fmi3SetDebugLogging(Instance *s, bool logging, size_t n, const char *const categories[]) {
    if (!allowed(s, "fmi3SetDebugLogging", ANY_PHASE)) return ERROR;
    return n > 0 && categories == NULL ? refuse(s, "a null pointer was given for the categories.") : OK;
}

EXPORT int fmi3EnterInitializationMode(Instance *s, bool has_tolerance, double tolerance, double from, bool has_stop,
                                       double stop) {
    if (!allowed(s, "fmi3EnterInitializationMode", INSTANTIATED)) return ERROR;
    if (has_stop && !(stop >= from)) return refuse(s, "the stop time %g s is before the start, %g s.", stop, from);
    if (start(s, from) != OK) return ERROR;
    s->phase = INITIALIZATION;
    return OK;
}

EXPORT int fmi3ExitInitializationMode(Instance *s) {
    if (!allowed(s, "fmi3ExitInitializationMode", INITIALIZATION)) return ERROR;
    s->phase = s->is_exchange ? EVENT : STEP;
    return begin(s);
}

EXPORT int fmi3Terminate(Instance *s) {
    if (!allowed(s, "fmi3Terminate", RUNNING | FAILED)) return ERROR;
    s->phase = TERMINATED;
    return OK;
}

EXPORT int fmi3Reset(Instance *s) {
    if (!allowed(s, "fmi3Reset", ANY_PHASE)) return ERROR;
    instance_reset(s);
    return OK;
}

/* --- variables ------------------------------------------------------------------------------------------------------- */

static int fits(const Instance *s, size_t n, size_t n_values) {
    if (n == n_values) return 1;
    refuse(s, "%zu value references were given with %zu values: all variables are scalars.", n, n_values);
    return 0;
}

EXPORT int fmi3GetFloat64(Instance *s, const uint32_t *references, size_t n, double *values, size_t n_values) {
    if (!allowed(s, "fmi3GetFloat64", ANY_PHASE) || !fits(s, n, n_values)) return ERROR;
    return get_values(s, references, n, values);
}

EXPORT int fmi3SetFloat64(Instance *s, const uint32_t *references, size_t n, const double *values, size_t n_values) {
    if (!allowed(s, "fmi3SetFloat64", INSTANTIATED | INITIALIZATION | RUNNING) || !fits(s, n, n_values)) return ERROR;
    return set_values(s, references, n, values);
}

/* All variables are of the type Float64. */
static int none(const Instance *s, const char *function, size_t n) {
    if (!allowed(s, function, ANY_PHASE)) return ERROR;
    return n == 0 ? OK : refuse(s, "%s: all variables of this FMU are of the type Float64.", function);
}

#define NONE(name, type)                                                                                              \
    EXPORT int fmi3Get##name(Instance *s, const uint32_t *references, size_t n, type *values, size_t n_values) {      \
        return none(s, "fmi3Get" #name, n);                                                                           \
    }                                                                                                                 \
    EXPORT int fmi3Set##name(Instance *s, const uint32_t *references, size_t n, const type *values,                   \
                             size_t n_values) {                                                                       \
        return none(s, "fmi3Set" #name, n);                                                                           \
    }

NONE(Float32, float)
NONE(Int8, int8_t)
NONE(UInt8, uint8_t)
NONE(Int16, int16_t)
NONE(UInt16, uint16_t)
NONE(Int32, int32_t)
NONE(UInt32, uint32_t)
NONE(Int64, int64_t)
NONE(UInt64, uint64_t)
NONE(Boolean, bool)
NONE(String, char *)

EXPORT int fmi3GetBinary(Instance *s, const uint32_t *references, size_t n, size_t *sizes, const uint8_t **values,
                         size_t n_values) {
    return none(s, "fmi3GetBinary", n);
}

EXPORT int fmi3SetBinary(Instance *s, const uint32_t *references, size_t n, const size_t *sizes,
                         const uint8_t *const *values, size_t n_values) {
    return none(s, "fmi3SetBinary", n);
}

EXPORT int fmi3GetClock(Instance *s, const uint32_t *references, size_t n, bool *values) {
    return none(s, "fmi3GetClock", n);
}

EXPORT int fmi3SetClock(Instance *s, const uint32_t *references, size_t n, const bool *values) {
    return none(s, "fmi3SetClock", n);
}

/* --- the state as a whole -------------------------------------------------------------------------------------------- */

EXPORT int fmi3GetFMUState(Instance *s, void **state) {
    return allowed(s, "fmi3GetFMUState", ANY_PHASE) ? snapshot_get(s, state) : ERROR;
}

EXPORT int fmi3SetFMUState(Instance *s, const void *state) {
    return allowed(s, "fmi3SetFMUState", ANY_PHASE) ? snapshot_set(s, state) : ERROR;
}

EXPORT int fmi3FreeFMUState(Instance *s, void **state) {
    if (!allowed(s, "fmi3FreeFMUState", ANY_PHASE)) return ERROR;
    if (state == NULL) return refuse(s, "a null pointer was given for the state.");
    free(*state);
    *state = NULL;
    return OK;
}

EXPORT int fmi3SerializedFMUStateSize(Instance *s, const void *state, size_t *size) {
    if (!allowed(s, "fmi3SerializedFMUStateSize", ANY_PHASE)) return ERROR;
    if (state == NULL || size == NULL) return refuse(s, "a null pointer was given for the state or its size.");
    *size = snapshot_size(s);
    return OK;
}

EXPORT int fmi3SerializeFMUState(Instance *s, const void *state, uint8_t *bytes, size_t size) {
    return allowed(s, "fmi3SerializeFMUState", ANY_PHASE) ? snapshot_write(s, state, bytes, size) : ERROR;
}

EXPORT int fmi3DeserializeFMUState(Instance *s, const uint8_t *bytes, size_t size, void **state) {
    return allowed(s, "fmi3DeserializeFMUState", ANY_PHASE) ? snapshot_read(s, bytes, size, state) : ERROR;
}

/* --- co-simulation --------------------------------------------------------------------------------------------------- */

EXPORT int fmi3DoStep(Instance *s, double from, double length, bool no_earlier_state, bool *has_event,
                      bool *terminate, bool *is_early, double *time) {
    if (!allowed(s, "fmi3DoStep", STEP)) return ERROR;
    if (has_event == NULL || terminate == NULL || is_early == NULL || time == NULL)
        return refuse(s, "a null pointer was given for a result of fmi3DoStep.");
    int status = do_step(s, from, length);
    *has_event = *terminate = *is_early = false;
    *time = s->row[s->header->n_states];
    return status;
}

/* --- model exchange -------------------------------------------------------------------------------------------------- */

EXPORT int fmi3EnterEventMode(Instance *s) {
    if (!allowed(s, "fmi3EnterEventMode", EXCHANGE)) return ERROR;
    s->phase = EVENT;
    return OK;
}

EXPORT int fmi3EnterContinuousTimeMode(Instance *s) {
    if (!allowed(s, "fmi3EnterContinuousTimeMode", EVENT)) return ERROR;
    s->phase = CONTINUOUS;
    return OK;
}

EXPORT int fmi3UpdateDiscreteStates(Instance *s, bool *again, bool *terminate, bool *nominals, bool *values,
                                    bool *has_next, double *next) {
    int changed, defined;
    if (!allowed(s, "fmi3UpdateDiscreteStates", EVENT)) return ERROR;
    if (again == NULL || terminate == NULL || nominals == NULL || values == NULL || has_next == NULL || next == NULL)
        return refuse(s, "a null pointer was given for the event.");
    int status = handle_event(s, &changed, &defined, next);
    *again = *terminate = *nominals = false, *values = changed, *has_next = defined;
    return status;
}

EXPORT int fmi3CompletedIntegratorStep(Instance *s, bool no_earlier_state, bool *has_event, bool *terminate) {
    if (!allowed(s, "fmi3CompletedIntegratorStep", CONTINUOUS)) return ERROR;
    if (has_event == NULL || terminate == NULL) return refuse(s, "a null pointer was given for the event.");
    *has_event = needs_event(s), *terminate = false;
    return OK;
}

EXPORT int fmi3SetTime(Instance *s, double time) {
    return allowed(s, "fmi3SetTime", EXCHANGE) ? set_time(s, time) : ERROR;
}

EXPORT int fmi3SetContinuousStates(Instance *s, const double *states, size_t n) {
    return allowed(s, "fmi3SetContinuousStates", CONTINUOUS) ? set_states(s, states, n) : ERROR;
}

EXPORT int fmi3GetContinuousStates(Instance *s, double *states, size_t n) {
    return allowed(s, "fmi3GetContinuousStates", ANY_PHASE) ? get_states(s, states, n) : ERROR;
}

EXPORT int fmi3GetContinuousStateDerivatives(Instance *s, double *derivatives, size_t n) {
    int phases = EXCHANGE | INITIALIZATION;
    return allowed(s, "fmi3GetContinuousStateDerivatives", phases) ? get_derivatives(s, derivatives, n) : ERROR;
}

EXPORT int fmi3GetNominalsOfContinuousStates(Instance *s, double *nominals, size_t n) {
    return allowed(s, "fmi3GetNominalsOfContinuousStates", ANY_PHASE) ? get_nominals(s, nominals, n) : ERROR;
}

EXPORT int fmi3GetEventIndicators(Instance *s, double *indicators, size_t n) {
    if (!allowed(s, "fmi3GetEventIndicators", ANY_PHASE)) return ERROR;
    return n == 0 ? OK : refuse(s, "this FMU has no event indicators.");
}

static int count(const Instance *s, const char *function, size_t *n, size_t number) {
    if (!allowed(s, function, ANY_PHASE)) return ERROR;
    if (n == NULL) return refuse(s, "a null pointer was given for a number.");
    *n = number;
    return OK;
}

EXPORT int fmi3GetNumberOfEventIndicators(Instance *s, size_t *n) {
    return count(s, "fmi3GetNumberOfEventIndicators", n, 0);
}

EXPORT int fmi3GetNumberOfContinuousStates(Instance *s, size_t *n) {
    return count(s, "fmi3GetNumberOfContinuousStates", n, s == NULL ? 0 : (size_t)s->header->n_states);
}

/* --- what this FMU does not offer ------------------------------------------------------------------------------------ */

#define REFUSED(name, ...)                                                                                            \
    EXPORT int name(Instance *s, ##__VA_ARGS__) {                                                                     \
        return allowed(s, #name, ANY_PHASE) ? refuse(s, #name " is not offered by this FMU.") : ERROR;                \
    }

typedef const uint32_t *References;
typedef const double *Given;

REFUSED(fmi3EnterStepMode)
REFUSED(fmi3EnterConfigurationMode)
REFUSED(fmi3ExitConfigurationMode)
REFUSED(fmi3EvaluateDiscreteStates)
REFUSED(fmi3GetNumberOfVariableDependencies, uint32_t reference, size_t *n)
REFUSED(fmi3GetVariableDependencies, uint32_t reference, size_t *places, uint32_t *independents, size_t *others,
        int *kinds, size_t n)
REFUSED(fmi3GetDirectionalDerivative, References unknowns, size_t n, References knowns, size_t n_knowns, Given seed,
        size_t n_seed, double *values, size_t n_values)
REFUSED(fmi3GetAdjointDerivative, References unknowns, size_t n, References knowns, size_t n_knowns, Given seed,
        size_t n_seed, double *values, size_t n_values)
REFUSED(fmi3GetOutputDerivatives, References references, size_t n, const int32_t *orders, double *values, size_t n_values)
REFUSED(fmi3GetIntervalDecimal, References clocks, size_t n, double *intervals, int *qualifiers)
REFUSED(fmi3GetIntervalFraction, References clocks, size_t n, uint64_t *counters, uint64_t *resolutions, int *qualifiers)
REFUSED(fmi3GetShiftDecimal, References clocks, size_t n, double *shifts)
REFUSED(fmi3GetShiftFraction, References clocks, size_t n, uint64_t *counters, uint64_t *resolutions)
REFUSED(fmi3SetIntervalDecimal, References clocks, size_t n, Given intervals)
REFUSED(fmi3SetIntervalFraction, References clocks, size_t n, const uint64_t *counters, const uint64_t *resolutions)
REFUSED(fmi3SetShiftDecimal, References clocks, size_t n, Given shifts)
REFUSED(fmi3SetShiftFraction, References clocks, size_t n, const uint64_t *counters, const uint64_t *resolutions)
REFUSED(fmi3ActivateModelPartition, uint32_t clock, double time)
