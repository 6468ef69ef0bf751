/* A small importer of FMUs for co-simulation, written from the standard alone: FMI 2.0 and FMI 3.0, without Python.

   importer VERSION LIBRARY TOKEN RESOURCES STEP STEPS N_INPUTS N_OUTPUTS <inputs >outputs

   Inputs and outputs are rows of doubles, one per step. The value references are: 0 time, then the inputs, then the
   outputs. A second instance is stepped in between with other inputs and half steps, and every 7th step is first tried
   with other inputs and taken back: none of this may be seen in the outputs. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    void (*log)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(size_t, size_t);
    void (*release)(void *);
    void (*finished)(void *, int);
    void *environment;
} Callbacks2;

static void *library;
static int version;
static uint32_t references[4096];

static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "no function %s\n", name);
        exit(2);
    }
    return found;
}

static void must(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s: status %d\n", what, status);
        exit(3);
    }
}

static void log_2(void *environment, const char *name, int status, const char *category, const char *text, ...) {
    fprintf(stderr, "%s: %s\n", name, text);
}

static void log_3(void *environment, int status, const char *category, const char *text) {
    fprintf(stderr, "%s\n", text);
}

static void *make(const char *name, const char *token, const char *resources) {
    static const Callbacks2 callbacks = {log_2, calloc, free, NULL, NULL};
    void *made;
    if (version == 2) {
        void *(*instantiate)(const char *, int, const char *, const char *, const Callbacks2 *, int, int) =
            function("fmi2Instantiate");
        int (*setup)(void *, int, double, double, int, double) = function("fmi2SetupExperiment");
        int (*enter)(void *) = function("fmi2EnterInitializationMode");
        int (*leave)(void *) = function("fmi2ExitInitializationMode");
        made = instantiate(name, 1, token, resources, &callbacks, 0, 0);
        if (made == NULL) exit(4);
        must(setup(made, 0, 0.0, 0.0, 0, 0.0), "setup");
        must(enter(made), "enter"), must(leave(made), "leave");
    } else {
        void *(*instantiate)(const char *, const char *, const char *, bool, bool, bool, bool, const uint32_t *, size_t,
                             void *, void (*)(void *, int, const char *, const char *), void *) =
            function("fmi3InstantiateCoSimulation");
        int (*enter)(void *, bool, double, double, bool, double) = function("fmi3EnterInitializationMode");
        int (*leave)(void *) = function("fmi3ExitInitializationMode");
        made = instantiate(name, token, resources, false, false, false, false, NULL, 0, NULL, log_3, NULL);
        if (made == NULL) exit(4);
        must(enter(made, false, 0.0, 0.0, false, 0.0), "enter"), must(leave(made), "leave");
    }
    return made;
}

static void step(void *s, double time, double length, const double *inputs, size_t n) {
    if (version == 2) {
        int (*set)(void *, const uint32_t *, size_t, const double *) = function("fmi2SetReal");
        int (*run)(void *, double, double, int) = function("fmi2DoStep");
        must(set(s, references + 1, n, inputs), "set"), must(run(s, time, length, 0), "step");
    } else {
        bool event, end, early;
        double last;
        int (*set)(void *, const uint32_t *, size_t, const double *, size_t) = function("fmi3SetFloat64");
        int (*run)(void *, double, double, bool, bool *, bool *, bool *, double *) = function("fmi3DoStep");
        must(set(s, references + 1, n, inputs, n), "set");
        must(run(s, time, length, false, &event, &end, &early, &last), "step");
        if (event || end || early || last < time + 0.999 * length || last > time + 1.001 * length) exit(5);
    }
}

static void get(void *s, size_t first, size_t n, double *values) {
    if (version == 2) {
        int (*read)(void *, const uint32_t *, size_t, double *) = function("fmi2GetReal");
        must(read(s, references + first, n, values), "get");
    } else {
        int (*read)(void *, const uint32_t *, size_t, double *, size_t) = function("fmi3GetFloat64");
        must(read(s, references + first, n, values, n), "get");
    }
}

static void state(void *s, const char *action, void *argument) {
    char name[40];
    snprintf(name, sizeof name, version == 2 ? "fmi2%sFMUstate" : "fmi3%sFMUState", action);
    int (*call)(void *, void *) = function(name);
    must(call(s, argument), name);
}

int main(int count, char **word) {
    if (count != 9) return 1;
    version = atoi(word[1]);
    library = dlopen(word[2], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    double length = atof(word[5]);
    size_t steps = (size_t)atol(word[6]), n_in = (size_t)atol(word[7]), n_out = (size_t)atol(word[8]);
    for (uint32_t i = 0; i < 4096; i++) references[i] = i;
    double *inputs = calloc(n_in + 1, sizeof(double)), *others = calloc(n_in + 1, sizeof(double));
    double *outputs = calloc(n_out + 1, sizeof(double));
    void *one = make("one", word[3], word[4]), *two = make("two", word[3], word[4]), *kept = NULL;
    for (size_t k = 0; k < steps; k++) {
        double time = (double)k * length;
        if (fread(inputs, sizeof(double), n_in, stdin) != n_in) return 6;
        for (size_t i = 0; i < n_in; i++) others[i] = 0.5 - inputs[i];
        step(two, time, 0.5 * length, others, n_in);
        if (k % 7 == 0) {
            state(one, "Get", &kept);
            step(one, time, length, others, n_in);
            step(one, time + length, length, inputs, n_in);
            state(one, "Set", kept);
        }
        step(one, time, length, inputs, n_in);
        step(two, time + 0.5 * length, 0.5 * length, inputs, n_in);
        get(one, n_in + 1, n_out, outputs);
        fwrite(outputs, sizeof(double), n_out, stdout);
    }
    state(one, "Free", &kept);
    int (*terminate)(void *) = function(version == 2 ? "fmi2Terminate" : "fmi3Terminate");
    void (*release)(void *) = function(version == 2 ? "fmi2FreeInstance" : "fmi3FreeInstance");
    must(terminate(one), "terminate"), must(terminate(two), "terminate");
    release(one), release(two);
    return 0;
}
