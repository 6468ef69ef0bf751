/* The verification circuit of verification_step.c for W variants side by side, a vector register for each quantity.
   Built and run by lanes.py with GCC's vectors. Mass, volume and two flows differ from variant to variant. The
   operations are those of verification_step.c in their order, with choices instead of branches: the results have the
   same bits for any W. With -DVECTOR_TANH=NAME, tanh is that of glibc's libmvec, whose last bits differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "parameters.h"

enum { P_S, P_A, P_B, X, V, Q, K, U, N };
enum { MASS, VOLUME, FLOW, VALVE, VARIED };
typedef double Lane __attribute__((vector_size(8 * W)));
static const double MIDDLE[VARIED] = {M_EQ, V_S, Q_MAX, C_V};

#ifdef VECTOR_TANH
extern "C" Lane VECTOR_TANH(Lane);
#define bent VECTOR_TANH
#else
static inline Lane bent(Lane x) {
    for (int l = 0; l < W; l++) x[l] = tanh(x[l]);
    return x;
}
#endif

static inline Lane all(double x) { return Lane{} + x; }
static inline Lane least(Lane a, Lane b) { return a < b ? a : b; }
static inline Lane most(Lane a, Lane b) { return a > b ? a : b; }
static inline Lane clip(Lane x, Lane a, Lane b) { return x < a ? a : x > b ? b : x; }
static inline Lane size(Lane x) { return x < 0.0 ? -x : x; }

static inline Lane square_root(Lane x) {
    Lane found;
    for (int l = 0; l < W; l++) found[l] = sqrt(x[l]);
    return found;
}

static inline Lane step(Lane x, double x0, double y0, double x1, double y1) {
    Lane s = clip((x - x0) / (x1 - x0), all(0.0), all(1.0));
    return y0 + (y1 - y0) * s * s * (3.0 - 2.0 * s);
}

static inline Lane root(Lane dp) {
    Lane r = dp / P_TR, far = square_root(size(dp)), near = sqrt(P_TR) * r * (3.0 - size(r)) * 0.5;
    return size(dp) < P_TR ? near : dp < 0.0 ? -far : far;
}

static inline Lane edge(Lane c, Lane opening, Lane dp, Lane leak) {
    return (c * most(opening, all(0.0)) + leak) * root(dp);
}

static inline Lane stop(Lane depth, Lane v) {
    Lane force = step(depth, 0.0, 0.0, ZONE, 1.0) * most(K_END * depth + D_END * v, all(0.0));
    return depth <= 0.0 ? all(0.0) : force;
}

static void rates(const Lane *z, const Lane *of, double command, Lane *d) {
    Lane none = all(0.0), limit = least(of[FLOW], P_MAX * ETA / most(z[P_S], all(1.0))), room = limit - z[Q];
    Lane dq = (K_PUMP * (P_REF_PUMP - z[P_S]) - z[Q]) / TAU_PUMP;
    dq = room <= 0.0 ? least(dq, room / TAU_PUMP) : dq;
    Lane q = least(z[Q], limit) - z[K] * square_root(most(z[P_S], none));
    Lane dk = ((z[P_S] - P_REF) - (C_1 + C_2 * z[P_S]) * z[K]) / C_DYN;
    d[U] = (clip(all(command), all(-1.0), all(1.0)) - z[U]) / TAU;
    Lane leak = C_LEAK * step(size(z[U]), 0.0, 1.0, U_LEAK, 0.0), c = of[VALVE];
    Lane pa = edge(c, z[U], z[P_S] - z[P_A], leak), bt = edge(c, z[U], z[P_B], leak);
    Lane pb = edge(c, -z[U], z[P_S] - z[P_B], leak), at = edge(c, -z[U], z[P_A], leak);
    Lane past = C_PISTON * (z[P_A] - z[P_B]), x = clip(z[X], none, all(STROKE));
    d[P_S] = (q - pa - pb) * B_O / of[VOLUME];
    d[P_A] = (pa - at - A_A * z[V] - past) * B_O / (V_0A + A_A * x);
    d[P_B] = (pb - bt + A_B * z[V] + past) * B_O / (V_0B + A_B * (STROKE - x));
    Lane force = A_A * z[P_A] - A_B * z[P_B], speed = size(z[V]);
    Lane xi = speed < 0.1 ? step(speed, 0.0, 1.0, 0.1, 0.2) : step(speed, 0.1, 0.2, 5.0, 1.0);
    Lane friction = xi * bent(z[V] / V_0) * size(force) * LOSS;
    Lane end = stop(z[X] - STROKE, z[V]) - stop(-z[X], -z[V]);
    d[X] = z[V];
    d[V] = (force - friction - end - F_G) / (of[MASS] + M_MOVING);
    dq = z[Q] <= 0.0 ? most(dq, none) : dq;
    d[Q] = z[Q] >= of[FLOW] ? least(dq, none) : dq;
    d[K] = z[K] <= 0.0 ? most(dk, none) : dk;
}

static void rk4(Lane *z, const Lane *of, double command, double h) {
    Lane k[N], y[N], sum[N];
    rates(z, of, command, k);
    for (int i = 0; i < N; i++) { sum[i] = k[i]; y[i] = z[i] + 0.5 * h * k[i]; }
    rates(y, of, command, k);
    for (int i = 0; i < N; i++) { sum[i] += 2.0 * k[i]; y[i] = z[i] + 0.5 * h * k[i]; }
    rates(y, of, command, k);
    for (int i = 0; i < N; i++) { sum[i] += 2.0 * k[i]; y[i] = z[i] + h * k[i]; }
    rates(y, of, command, k);
    for (int i = 0; i < N; i++) z[i] += h / 6.0 * (sum[i] + k[i]);
    z[Q] = clip(z[Q], all(0.0), of[FLOW]);
    z[K] = most(z[K], all(0.0));
    z[U] = clip(z[U], all(-1.0), all(1.0));
}

/* Arguments: number of variants (a multiple of 8), steps, step in s. Prints the processor's s per step of a variant, and
   the final states of all variants. */
int main(int count, char **words) {
    int variants = atoi(words[1]);
    long steps = atol(words[2]);
    double h = atof(words[3]), *final = (double *)malloc(sizeof(double) * N * variants);
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (int first = 0; first < variants; first += W) {
        Lane of[VARIED], z[N] = {all(P_S_START), all(P_A_START), all(P_B_START), all(X_START)};
        for (int i = 0; i < VARIED; i++)
            for (int l = 0; l < W; l++) of[i][l] = MIDDLE[i] * (0.9 + 0.2 * ((first + l) * (i + 3) % 17) / 16.0);
        for (long k = 0; k < steps; k += SUBSTEPS) {
            double command = 0.5 * sin(k * h * 6.283185307179586);
            for (int i = 0; i < SUBSTEPS; i++) rk4(z, of, command, h);
        }
        for (int i = 0; i < N; i++)
            for (int l = 0; l < W; l++) final[(first + l) * N + i] = z[i][l];
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    printf("%.17g", ((b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec)) / steps / variants);
    for (int i = 0; i < N * variants; i++) printf(" %.17g", final[i]);
    printf("\n");
    return 0;
}
