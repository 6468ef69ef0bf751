/* The L-stable method of a circuit (hilserver/circuit/rosenbrock.py) as hand-written C: the measure for its speed.
   Built and run by step_against_c.py with gcc -O3 -march=native. circuit.h has the circuit's equations, tables and
   inputs (circuit_in_c.py). With STRUCTURE the matrix is eliminated along the circuit's structure, in the same order as
   in the engine and without a loop; otherwise as a whole. Left out is what these runs do not need: cavitation, ports of a machine, recorded results.
   Reads the inputs of each tick, and writes the time of a step and the final state. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "circuit.h"

#define GAMMA (1.0 - 0.5 * M_SQRT2)
#define BEND_RELATIVE 0.3
#define BEND_ABSOLUTE 0.05
enum { PARTS = 1 << 14, COARSE = 1 << 8, MAX_EXAMINED = 64 };

static double z[N_VALUES], d[N + N_SUMS], start[N], f[N], k1[N], k2[N], bend[N], jacobian[N * N], lu[N * N];
static void clip_states(void) {
    for (unsigned k = 0; k < sizeof limited / sizeof *limited; k++) {
        int i = limited[k];
        z[i] = fmin(fmax(z[i], lower[i]), upper[i]);
    }
}

static double difference(double x, double size) { return (x + 1e-7 * fmax(fabs(x), size)) - x; }

/* The Jacobian by columns; states whose columns have no row in common are changed together. */
static void linearise(void) {
    double steps[N];
    memcpy(z, start, sizeof start);
    memset(jacobian, 0, sizeof jacobian);
    for (int g = 0; g < GROUPS; g++) {
        int found = 0;
        for (int k = group[g]; k < group[g + 1]; k++) {
            int j = state[k];
            double by = difference(start[j], scale[j]);
            if (start[j] + by > upper[j]) by = -by;
            if (f[j] == 0.0 && (start[j] <= lower[j] || start[j] >= upper[j])) by = 0.0;
            else { found = 1; z[j] = start[j] + by; }
            steps[k] = by;
        }
        if (!found) continue;
        rates(z, d);
        for (int k = group[g]; k < group[g + 1]; k++) {
            int j = state[k];
            if (steps[k] != 0.0)
                for (int c = column[k]; c < column[k + 1]; c++)
                    jacobian[j * N + row[c]] = (d[row[c]] - f[row[c]]) / steps[k];
            z[j] = start[j];
        }
    }
}

#ifdef STRUCTURE
#define solve solve_structure
#else
static int pivots[N];

/* Gaussian elimination with partial pivoting of a matrix by columns. */
static void factorise(double *restrict a) {
    for (int k = 0; k < N; k++) {
        double *pivot = a + k * N;
        int best = k;
        for (int i = k + 1; i < N; i++) if (fabs(pivot[i]) > fabs(pivot[best])) best = i;
        pivots[k] = best;
        if (best != k)
            for (int j = 0; j < N; j++) { double t = a[j * N + k]; a[j * N + k] = a[j * N + best]; a[j * N + best] = t; }
        for (int i = k + 1; i < N; i++) if (pivot[i] != 0.0) pivot[i] /= pivot[k];
        for (int j = k + 1; j < N; j++) {
            double factor = a[j * N + k];
            if (factor != 0.0) for (int i = k + 1; i < N; i++) a[j * N + i] -= pivot[i] * factor;
        }
    }
}

static void solve(const double *restrict a, double *restrict b) {
    for (int k = 0; k < N; k++) { double t = b[k]; b[k] = b[pivots[k]]; b[pivots[k]] = t; }
    for (int j = 0; j < N; j++) if (b[j] != 0.0) for (int i = j + 1; i < N; i++) b[i] -= a[j * N + i] * b[j];
    for (int j = N - 1; j >= 0; j--) {
        if (b[j] == 0.0) continue;
        b[j] /= a[j * N + j];
        for (int i = 0; i < j; i++) b[i] -= a[j * N + i] * b[j];
    }
}
#endif

static void attempt(double h) {
#ifdef STRUCTURE
    factorise_structure(jacobian, lu, -GAMMA * h);
#else
    for (int k = 0; k < N * N; k++) lu[k] = -GAMMA * h * jacobian[k];
    for (int i = 0; i < N; i++) lu[i * N + i] += 1.0;
    factorise(lu);
#endif
    memcpy(k1, f, sizeof f);
    solve(lu, k1);
    for (int i = 0; i < N; i++) z[i] = start[i] + GAMMA * h * k1[i];
    clip_states();
    rates(z, d);
    for (int i = 0; i < N; i++) { bend[i] = d[i] - k1[i]; k2[i] = d[i] - 2.0 * GAMMA * k1[i]; }
    solve(lu, k2);
    for (int i = 0; i < N; i++) z[i] = start[i] + h * (GAMMA * k1[i] + (2.0 - GAMMA) * k2[i]);
    clip_states();
}

static int is_small(int i, double error, double change) {
    return fabs(error) <= BEND_RELATIVE * change + BEND_ABSOLUTE * scale[i];
}

static int is_accurate(double h) {
    double change[N], error[N], predicted[N];
    int small = 1;
    for (int i = 0; i < N; i++) change[i] = z[i] - start[i];
    solve(lu, bend);
    for (int i = 0; i < N; i++) small &= is_small(i, h * bend[i], fmax(fabs(change[i]), fabs(GAMMA * h * k1[i])));
    if (!small) return 0;
    rates(z, d);
    memcpy(predicted, f, sizeof f);
    for (int j = 0; j < N; j++) for (int i = 0; i < N; i++) predicted[i] += jacobian[j * N + i] * change[j];
    for (int i = 0; i < N; i++) error[i] = d[i] - predicted[i];
    solve(lu, error);
    for (int i = 0; i < N; i++) small &= is_small(i, h * error[i], fabs(change[i]));
    return small;
}

/* One step; ``known``: whether d has the rates at its start. Returns the same of its end. */
static int rosenbrock(double h, int known) {
    int at = 0, examined = 0, size = PARTS;
    while (at < PARTS) {
        if (!known) rates(z, d);
        memcpy(start, z, sizeof start);
        memcpy(f, d, sizeof f);
        linearise();
        for (;;) {
            attempt(h * size / PARTS);
            known = size > 1 && ++examined <= MAX_EXAMINED;
            if (!known || is_accurate(h * size / PARTS)) break;
            size /= 2;
        }
        at += size;
        size = examined < MAX_EXAMINED ? 2 * size : COARSE;
        if (size > PARTS - at) size = PARTS - at;
    }
    return known;
}

int main(int count, char **words) {
    long ticks = atol(words[1]);
    double h = atof(words[2]);
    double *given = malloc(ticks * INPUTS * sizeof *given);
    if (count < 3 || fread(given, sizeof *given, ticks * INPUTS, stdin) != (size_t)(ticks * INPUTS)) return 1;
    memcpy(z, initial, sizeof z);
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (long k = 0; k < ticks; k++) {
        int known = 0;
        for (int i = 0; i < INPUTS; i++) z[input[i]] = given[k * INPUTS + i];
        for (int i = 0; i < SUBSTEPS; i++) known = rosenbrock(h, known);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    printf("%.17g", ((b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec)) / (ticks * SUBSTEPS));
    for (int i = 0; i < N; i++) printf(" %.17g", z[i]);
    printf("\n");
    return 0;
}
