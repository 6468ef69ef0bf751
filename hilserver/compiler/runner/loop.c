/* The tick: the compiled program on the memory of the rig, and what it is told. */
#include "runner.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a processor of level 3 can do, by its names in /proc/cpuinfo (as in hilserver/compiler/levels.py). */
static const char *const NEEDED_FOR_V3[] = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"};
static const char *const LEVELS[] = {"x86-64-v2", "x86-64-v3"};

static int64_t address(const void *p) { return (int64_t)(intptr_t)p; }

/* The level of this processor: an index of LEVELS. The results are the same at each level. */
static int level_of_this_machine(void) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t room = 0;
    int level = 0;
    if (file == NULL) return 0;
    while (getline(&line, &room, file) > 0)
        if (strncmp(line, "flags", 5) == 0) {
            char *end = strchr(line, '\n'), word[32];
            if (end != NULL) *end = ' ';
            level = 1;
            for (size_t i = 0; i < sizeof NEEDED_FOR_V3 / sizeof *NEEDED_FOR_V3; i++) {
                snprintf(word, sizeof word, " %s ", NEEDED_FOR_V3[i]);
                if (strstr(line, word) == NULL) level = 0;
            }
            break;
        }
    free(line);
    fclose(file);
    return level;
}

static int found(Entry **entry, void *library, const char *path, const char *name) {
    *(void **)entry = dlsym(library, name); /* as POSIX has it */
    return *entry != NULL || refuse("%s: has no function %s", path, name);
}

/* Load the program for this processor, the one that the rig was packed with. */
static int load_program(Loop *loop, const char *folder) {
    char path[LONGEST];
    int level = level_of_this_machine();
    size_t size = 0;
    snprintf(path, sizeof path, "%s/%s.so", folder, LEVELS[level]);
    char *bytes = read_file(path, &size);
    if (bytes == NULL) return refuse("%s: can't be read: %s", path, strerror(errno));
    uint32_t checksum = crc32_of(0, bytes, size);
    free(bytes);
    if (checksum != (uint64_t)cells_of(&loop->pack, loop->pack.head->programs)[level])
        return refuse("%s: is damaged, or not the program that the rig was packed with. Send it again", path);
    char *real = realpath(path, NULL); /* a name without a slash would be searched elsewhere */
    void *library = real == NULL ? NULL : dlopen(real, RTLD_NOW);
    free(real);
    if (library == NULL) return refuse("%s: can't be loaded: %s", path, dlerror());
    return found(&loop->tick, library, path, "hilserver_tick") &&
           found(&loop->run_bridged, library, path, "hilserver_run_bridged");
}

/* Read a packed rig, to know its row, without the program. */
int loop_read(Loop *loop, const char *folder) {
    memset(loop, 0, sizeof *loop);
    if (!pack_read(&loop->pack, folder)) return 0;
    loop->whole = cells_of(&loop->pack, loop->pack.head->row);
    loop->row = (double *)loop->whole;
    loop->width = loop->pack.head->row.n;
    loop->columns = cells_of(&loop->pack, loop->pack.head->columns);
    return 1;
}

/* Load the program for a rig that was read: its memory is as before the first tick. */
int loop_open(Loop *loop, const char *folder) {
    if (!load_program(loop, folder)) return 0;
    const Pack *pack = &loop->pack;
    const Head *h = pack->head;
    loop->frame = (Frame){.plan = address(cells_of(pack, h->plan)), .n_plan = h->plan.n,
                          .row = address(loop->row), .n_row = loop->width,
                          .command = address(loop->command.cell), .n_command = MESSAGE_CELLS,
                          .inputs = address(loop->columns), .given = address(loop->row), .n_given = 1,
                          .devices = address(cells_of(pack, h->devices)), .n_devices = h->devices.n,
                          .rows = address(loop->row), .n_rows = 1};
    return loop_use(loop, cells_of(pack, h->index), h->index.n, (double *)cells_of(pack, h->value), h->value.n,
                    h->n_work);
}

/* Whether the program works with this rig: it does in a copy of this process, which a file that is wrong in spite of
   its checksum can make fail, but not this one. */
int loop_try(Loop *loop) {
    enum { TRIED_TICKS = 2, PATIENCE = 10 };
    int status = 0;
    fflush(stdout);
    pid_t copy = fork();
    if (copy < 0) return refuse("there is no memory to try the rig: %s", strerror(errno));
    if (copy == 0) {
        int done = 1;
        prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL);
        alarm(PATIENCE);
        for (int i = 0; i < TRIED_TICKS && done; i++) {
            loop->whole[loop->columns[TICK]]++;
            done = loop_step(loop);
        }
        _exit(done ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    while (waitpid(copy, &status, 0) < 0 && errno == EINTR) {}
    if (WIFSIGNALED(status))
        return refuse("the rig is damaged: the program fails with it (%s)", strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status) == EXIT_SUCCESS;
}

/* Run another circuit from now on. */
int loop_use(Loop *loop, int64_t *index, int64_t n_index, double *value, int64_t n_value, int64_t n_work) {
    if (!is_index(loop->pack.head, index, n_index)) return refuse("this is not a circuit");
    double *work = calloc((size_t)n_work + 1, sizeof *work);
    if (work == NULL) return refuse("there is no memory for the circuit");
    free(loop->work);
    loop->work = work;
    loop->frame.index = address(index), loop->frame.n_index = n_index;
    loop->frame.value = address(value), loop->frame.n_value = n_value;
    loop->frame.work = address(work), loop->frame.n_work = n_work;
    return 1;
}

/* One tick alone, on the readings in the row; it takes the command. */
int loop_tick(Loop *loop) {
    int32_t status = loop->tick((int64_t *)&loop->frame);
    memset(&loop->command, 0, sizeof loop->command);
    return status == 0 || refuse("the compiled program has failed");
}

/* One tick with the simulated devices: their sensors before it, their motion behind it. */
int loop_step(Loop *loop) {
    return loop->run_bridged((int64_t *)&loop->frame) == 0 || refuse("the compiled program has failed");
}

/* --- commands and states ------------------------------------------------------------------------------------------ */

/* Cut the next word off a text; NULL if there is none. */
static char *next_word(char **text) {
    char *word;
    while ((word = strsep(text, " \t\n")) != NULL && *word == '\0') {}
    return word;
}

/* The message of a command such as "start", "input joystick 0.5", "strategy main feedback" or "cycle 1". */
int command_from(const Pack *pack, const char *text, double record[MESSAGE_CELLS]) {
    char copy[256], *rest = copy, *word, *end;
    int64_t kind = -1;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return refuse("\"%s\": is too long", text);
    memset(record, 0, MESSAGE_CELLS * sizeof *record);
    if ((word = next_word(&rest)) == NULL || (kind = number_of(pack, "command", word)) < 0)
        return refuse("\"%s\" is no command: arm, start, stop, disarm, reset, trip, input NAME VALUE, strategy VALVE "
                      "NAME, jog VALVE VALUE, cycle 1 or cycle 0", text);
    memcpy(record, &kind, sizeof kind);
    const char *owner = strcmp(word, "input") == 0 ? "input" : "valve";
    int is_named = strcmp(word, "input") == 0 || strcmp(word, "strategy") == 0 || strcmp(word, "jog") == 0;
    int is_strategy = strcmp(word, "strategy") == 0, n = is_named ? 2 : strcmp(word, "cycle") == 0;
    for (int i = 0; i < n; i++) {
        if ((word = next_word(&rest)) == NULL) return refuse("\"%s\": a name or value is missing", text);
        if (i == 0 && is_named) record[1] = (double)number_of(pack, owner, word);
        else if (is_strategy) record[2] = (double)number_of(pack, owner = "strategy", word);
        else {
            record[i + 1] = strtod(word, &end);
            if (*end != '\0' || !isfinite(record[i + 1])) return refuse("\"%s\": %s is not a number", text, word);
        }
        if ((is_strategy || i == 0) && is_named && record[i + 1] < 0.0)
            return refuse("\"%s\": the rig has no %s %s", text, owner, word);
    }
    if ((word = next_word(&rest)) != NULL) return refuse("\"%s\": %s is too much", text, word);
    return 1;
}

/* A line with the state: mode, fault; in real time also the process, all missed ticks, the latest start in s. */
void print_state(const Loop *loop, const double *row, const LoopMemory *memory) {
    char mode[64], fault[256];
    const Head *h = loop->pack.head;
    const int64_t *whole = (const int64_t *)row;
    name_of(&loop->pack, "mode", whole[h->mode], mode, sizeof mode);
    name_of(&loop->pack, "fault", whole[h->fault], fault, sizeof fault);
    printf("{\"rig\": \"%s\", \"mode\": \"%s\", \"tick\": %lld, \"fault\": \"%s\"", text_of(&loop->pack, h->name), mode,
           (long long)whole[loop->columns[TICK]], whole[h->fault] == 0 ? "" : fault);
    if (memory != NULL)
        printf(", \"pid\": %lld, \"missed_ticks\": %lld, \"time_sync_error\": %.9f",
               (long long)load(&memory->info[PROCESS_AT]), (long long)load(&memory->info[MISSED_AT]),
               1e-9 * (double)load(&memory->info[LATEST_AT]));
    puts("}");
    fflush(stdout);
}
