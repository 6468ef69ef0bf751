/* hilserver-runner: runs a packed rig (`hilserver pack`) without Python. */
#include "runner.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

static const char USAGE[] =
    "hilserver-runner FOLDER [OPTIONS]: run the rig that `hilserver pack` has written into this folder.\n"
    "\n"
    "  --rows FILE        record all rows in this file\n"
    "  --for SECONDS      end after this time; without it, at SIGTERM\n"
    "  --check            only check the files and this machine\n"
    "  --status           only print the state of the running rig\n"
    "  --send COMMAND     only send a command to the running rig: \"arm\", \"start\", \"input joystick 0.5\", …\n"
    "  --lockstep TICKS   run so many ticks without a clock\n"
    "  --at \"TICK COMMAND\"  with --lockstep: a command for a tick, counted from 0; also \"TICK miss N\"\n"
    "  --replay FILE      replay recorded rows and compare every value\n";
enum { WRONG_USE = 2 };

/* What is asked for on the command line. */
typedef struct {
    const char *folder, *rows, *send, *replay, *orders[MOST_ORDERS];
    int n_orders, check, status;
    int64_t ticks;
    double duration;
} Wanted;

int refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("hilserver-runner: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs(".\n", stderr);
    va_end(arguments);
    return 0;
}

/* The value of an option. */
static const char *value_of(char **words, int n, int *i) {
    if (*i + 1 < n) return words[++*i];
    refuse("%s: its value is missing", words[*i]);
    return NULL;
}

static int number_from(const char *text, const char *option, double *number) {
    char *end;
    *number = strtod(text, &end);
    return (end != text && *end == '\0' && *number > 0.0 && *number < 1e12) ||
           refuse("%s %s: must be a number greater than 0", option, text);
}

static int read_option(Wanted *w, char **words, int n, int *i) {
    const char *option = words[*i], *value;
    double number = 0.0;
    if (option[0] != '-') return w->folder == NULL ? (w->folder = option, 1) : refuse("%s: one folder only", option);
    if (strcmp(option, "--check") == 0) return w->check = 1;
    if (strcmp(option, "--status") == 0) return w->status = 1;
    const char **texts[] = {&w->rows, &w->send, &w->replay};
    const char *names[] = {"--rows", "--send", "--replay"};
    for (int k = 0; k < 3; k++)
        if (strcmp(option, names[k]) == 0) return (*texts[k] = value_of(words, n, i)) != NULL;
    int is_at = strcmp(option, "--at") == 0, is_for = strcmp(option, "--for") == 0;
    if (!is_at && !is_for && strcmp(option, "--lockstep") != 0) return refuse("%s: there is no such option", option);
    if ((value = value_of(words, n, i)) == NULL) return 0;
    if (is_at) {
        if (w->n_orders == MOST_ORDERS) return refuse("--at: more than %d commands", MOST_ORDERS);
        w->orders[w->n_orders++] = value;
        return 1;
    }
    if (!number_from(value, option, &number)) return 0;
    if (is_for) w->duration = number;
    else w->ticks = (int64_t)number;
    return is_for || (double)w->ticks == number || refuse("%s %s: must be a whole number", option, value);
}

/* Whether the options belong together. */
static int is_clear(const Wanted *w) {
    int is_lockstep = w->ticks > 0, is_short = w->check + w->status + (w->send != NULL);
    int n = is_short + (w->replay != NULL) + is_lockstep;
    if (n > 1) return refuse("--check, --status, --send, --lockstep and --replay: one at a time");
    if (w->n_orders > 0 && !is_lockstep) return refuse("--at belongs to --lockstep");
    if (w->duration > 0.0 && n > 0) return refuse("--for belongs to a run in real time");
    if (w->rows != NULL && is_short > 0) return refuse("--rows: nothing is recorded here");
    return 1;
}

/* Attach to the running rig. */
static int attach(LoopMemory *memory, const Loop *loop) {
    return memory_attach(memory, text_of(&loop->pack, loop->pack.head->name), loop->width);
}

/* Print the state of the running rig. */
static int show_state(const Loop *loop) {
    LoopMemory memory;
    double *row = calloc((size_t)loop->width, sizeof *row);
    int done = row != NULL && attach(&memory, loop);
    if (done && ring_latest(&memory.ring, row) < 0) done = refuse("the rig is just starting");
    if (done) print_state(loop, row, &memory);
    free(row);
    return done;
}

/* What came of a command, in the row of the tick that has taken it. */
static int result_in(const Loop *loop, const double *row) {
    char text[256];
    int64_t result = ((const int64_t *)row)[loop->pack.head->result];
    name_of(&loop->pack, "result", result, text, sizeof text);
    print_state(loop, row, NULL);
    return result == 0 || refuse("refused: %s", text);
}

/* Wait until the loop has taken a command; what came of it. `from`: number of the first row that may have taken it. */
static int result_of(const Loop *loop, const LoopMemory *memory, int64_t sequence, int64_t from, double *row) {
    const int64_t *taken = (const int64_t *)row + loop->pack.head->command;
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int i = 0; i < 1000; i++) {
        for (; from < load(memory->ring.published); from++)
            if (ring_copy(&memory->ring, from, row) < memory->ring.capacity && *taken >= sequence)
                return *taken == sequence ? result_in(loop, row) : refuse("carried out; what came of it was missed");
        nanosleep(&pause, NULL);
    }
    return refuse("the rig does not answer");
}

/* Send a command to the running rig, one sender at a time. */
static int send_command(const Loop *loop, const char *text) {
    LoopMemory memory;
    double record[MESSAGE_CELLS], *row = calloc((size_t)loop->width, sizeof *row);
    int64_t sequence = 0, from = 0;
    int done = row != NULL && command_from(&loop->pack, text, record) && attach(&memory, loop);
    if (done) from = load(memory.ring.published);
    if (done && (sequence = memory_post(&memory, record)) < 0) done = refuse("the rig does not take commands");
    done = done && result_of(loop, &memory, sequence, from, row);
    free(row);
    return done;
}

int main(int n, char **words) {
    static Loop loop;
    Wanted w = {0};
    int done;
    for (int i = 1; i < n; i++) {
        if (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0) return fputs(USAGE, stdout) < 0;
        if (!read_option(&w, words, n, &i)) return WRONG_USE;
    }
    if (w.folder == NULL) {
        fputs(USAGE, stderr);
        return WRONG_USE;
    }
    if (!is_clear(&w)) return WRONG_USE;
    if (!loop_read(&loop, w.folder)) return EXIT_FAILURE;
    int is_for_another = w.status || w.send != NULL; /* process, which has the program */
    if (!is_for_another && !(loop_open(&loop, w.folder) && loop_try(&loop))) return EXIT_FAILURE;
    if (w.replay == NULL && !is_for_another && loop.pack.head->devices.n + loop.pack.head->workers.n == 0) {
        refuse("%s: was packed from a log, to be replayed: it has no devices", w.folder);
        return EXIT_FAILURE;
    }
    if (w.check) done = check_machine(&loop);
    else if (w.status) done = show_state(&loop);
    else if (w.send != NULL) done = send_command(&loop, w.send);
    else if (w.replay != NULL) done = replay(&loop, w.replay, w.rows);
    else if (w.ticks > 0) done = run_lockstep(&loop, w.ticks, w.orders, w.n_orders, w.rows);
    else done = run_in_real_time(&loop, w.rows, w.duration);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
