/* The verification circuit (theory §4) as hand-written C: the measure for the speed of the circuit engine.
   Built and run by step_against_c.py with: gcc -O3 -march=native. Parameters come from the components' own parameters(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "parameters.h"

enum { P_S, P_A, P_B, X, V, Q, K, U, N };

static inline double clip(double x, double a, double b) { return x < a ? a : x > b ? b : x; }

static inline double step(double x, double x0, double y0, double x1, double y1) {
    double s = clip((x - x0) / (x1 - x0), 0.0, 1.0);
    return y0 + (y1 - y0) * s * s * (3.0 - 2.0 * s);
}

static inline double root(double dp) {
    if (dp >= P_TR) return sqrt(dp);
    if (dp <= -P_TR) return -sqrt(-dp);
    double r = dp / P_TR;
    return sqrt(P_TR) * r * (3.0 - fabs(r)) * 0.5;
}

static inline double edge(double opening, double dp, double leak) {
    return (C_V * fmax(opening, 0.0) + leak) * root(dp);
}

static inline double stop(double depth, double v) {
    return depth <= 0.0 ? 0.0 : step(depth, 0.0, 0.0, ZONE, 1.0) * fmax(K_END * depth + D_END * v, 0.0);
}

static void rates(const double *z, double command, double *d) {
    double limit = fmin(Q_MAX, P_MAX * ETA / fmax(z[P_S], 1.0)), room = limit - z[Q];
    d[Q] = (K_PUMP * (P_REF_PUMP - z[P_S]) - z[Q]) / TAU_PUMP;
    if (room <= 0.0) d[Q] = fmin(d[Q], room / TAU_PUMP);
    double q = fmin(z[Q], limit) - z[K] * sqrt(fmax(z[P_S], 0.0));
    d[K] = ((z[P_S] - P_REF) - (C_1 + C_2 * z[P_S]) * z[K]) / C_DYN;
    d[U] = (clip(command, -1.0, 1.0) - z[U]) / TAU;
    double leak = C_LEAK * step(fabs(z[U]), 0.0, 1.0, U_LEAK, 0.0);
    double pa = edge(z[U], z[P_S] - z[P_A], leak), bt = edge(z[U], z[P_B], leak);
    double pb = edge(-z[U], z[P_S] - z[P_B], leak), at = edge(-z[U], z[P_A], leak);
    double past = C_PISTON * (z[P_A] - z[P_B]), x = clip(z[X], 0.0, STROKE);
    d[P_S] = (q - pa - pb) * B_O / V_S;
    d[P_A] = (pa - at - A_A * z[V] - past) * B_O / (V_0A + A_A * x);
    d[P_B] = (pb - bt + A_B * z[V] + past) * B_O / (V_0B + A_B * (STROKE - x));
    double force = A_A * z[P_A] - A_B * z[P_B], speed = fabs(z[V]);
    double xi = speed < 0.1 ? step(speed, 0.0, 1.0, 0.1, 0.2) : step(speed, 0.1, 0.2, 5.0, 1.0);
    double friction = xi * tanh(z[V] / V_0) * fabs(force) * LOSS;
    double end = stop(z[X] - STROKE, z[V]) - stop(-z[X], -z[V]);
    d[X] = z[V];
    d[V] = (force - friction - end - F_G) / (M_EQ + M_MOVING);
    if (z[Q] <= 0.0 && d[Q] < 0.0) d[Q] = 0.0;
    if (z[Q] >= Q_MAX && d[Q] > 0.0) d[Q] = 0.0;
    if (z[K] <= 0.0 && d[K] < 0.0) d[K] = 0.0;
}

static void rk4(double *z, double command, double h) {
    double k[N], y[N], sum[N];
    rates(z, command, k);
    for (int i = 0; i < N; i++) { sum[i] = k[i]; y[i] = z[i] + 0.5 * h * k[i]; }
    rates(y, command, k);
    for (int i = 0; i < N; i++) { sum[i] += 2.0 * k[i]; y[i] = z[i] + 0.5 * h * k[i]; }
    rates(y, command, k);
    for (int i = 0; i < N; i++) { sum[i] += 2.0 * k[i]; y[i] = z[i] + h * k[i]; }
    rates(y, command, k);
    for (int i = 0; i < N; i++) z[i] += h / 6.0 * (sum[i] + k[i]);
    z[Q] = clip(z[Q], 0.0, Q_MAX);
    z[K] = fmax(z[K], 0.0);
    z[U] = clip(z[U], -1.0, 1.0);
}

int main(int count, char **words) {
    long steps = count > 1 ? atol(words[1]) : 100000;
    double h = count > 2 ? atof(words[2]) : 1e-4;
    double z[N] = {P_S_START, P_A_START, P_B_START, X_START, 0.0, 0.0, 0.0, 0.0};
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (long k = 0; k < steps; k += SUBSTEPS) {
        double command = 0.5 * sin(k * h * 6.283185307179586);
        for (int i = 0; i < SUBSTEPS; i++) rk4(z, command, h);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    printf("%.17g", ((b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec)) / steps);
    for (int i = 0; i < N; i++) printf(" %.17g", z[i]);
    printf("\n");
    return 0;
}
