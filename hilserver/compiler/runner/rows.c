/* Runs without a clock: lockstep against the simulated devices, and the replay of recorded rows. And files of rows. */
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char MAGIC[8] = {'H', 'I', 'L', 'R', 'O', 'W', 'S', '1'};

/* --- writing ------------------------------------------------------------------------------------------------------ */

static int write_all(int file, const void *bytes, size_t n) {
    const char *rest = bytes;
    while (n > 0) {
        ssize_t done = write(file, rest, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return 0;
        rest += done, n -= (size_t)done;
    }
    return 1;
}

/* Create a file of rows; it must not exist. */
int rows_create(RowsFile *rows, const char *path, const Pack *pack, int64_t width) {
    RowsHead head = {.width = width, .n_text = pack->head->about.n};
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    memcpy(head.fingerprint, pack->head->fingerprint, FINGERPRINT);
    const int64_t *text = cells_of(pack, pack->head->about);
    head.checksum = crc32_of(0, text, (size_t)head.n_text * CELL);
    rows->size = (int64_t)sizeof head + head.n_text * CELL;
    rows->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (rows->file < 0) return refuse("%s: can't be created: %s", path, strerror(errno));
    return (write_all(rows->file, &head, sizeof head) &&
            write_all(rows->file, text, (size_t)head.n_text * CELL)) ||
           refuse("%s: can't be written: %s", path, strerror(errno));
}

/* Append a record; 0 if it can't be written: the file ends with the record before. */
int rows_add(RowsFile *rows, uint32_t kind, const void *cells, int64_t n) {
    RecordHead head = {.kind = kind, .n = n};
    if (rows->file < 0) return 1;
    head.checksum = crc32_of(kind, cells, (size_t)n * CELL);
    if (!write_all(rows->file, &head, sizeof head) || !write_all(rows->file, cells, (size_t)n * CELL)) {
        int problem = errno;
        if (ftruncate(rows->file, rows->size) != 0) {} /* then it ends with a part of a record, which is left out */
        errno = problem;
        return 0;
    }
    rows->size += (int64_t)sizeof head + n * CELL;
    return 1;
}

int rows_close(RowsFile *rows) {
    int file = rows->file;
    rows->file = -1;
    return file < 0 || close(file) == 0;
}

/* --- lockstep ----------------------------------------------------------------------------------------------------- */

/* What is to be done in a tick: a command, or that so many ticks are missed before it. */
typedef struct {
    int64_t tick, missed;
    double command[MESSAGE_CELLS];
} Order;

/* "TICK COMMAND" or "TICK miss N", for a tick that is run; one of each kind per tick. */
static int read_order(const Pack *pack, const char *text, int64_t ticks, const Order *others, int n, Order *order) {
    char *rest;
    int end = 0;
    *order = (Order){.tick = strtoll(text, &rest, 10)};
    if (rest == text || *rest != ' ' || order->tick < 0 || order->tick >= ticks)
        return refuse("--at \"%s\": must begin with the number of a tick, 0 to %lld", text, (long long)ticks - 1);
    int is_miss = sscanf(rest, " miss %7" SCNd64 "%n", &order->missed, &end) == 1;
    if (is_miss && (order->missed < 1 || rest[end] != '\0'))
        return refuse("--at \"%s\": miss needs a number of ticks, 1 to 9999999", text);
    for (int i = 0; i < n; i++)
        if (others[i].tick == order->tick && (others[i].missed > 0) == is_miss)
            return refuse("--at \"%s\": there is another one in this tick", text);
    return is_miss || command_from(pack, rest + 1, order->command);
}

/* Run so many ticks without a clock, with these orders. */
int run_lockstep(Loop *loop, int64_t ticks, const char *const *texts, int n_orders, const char *out) {
    static Order orders[MOST_ORDERS];
    RowsFile rows = {.file = -1};
    int64_t missed = 0, sequence = 0;
    if (loop->pack.head->workers.n > 0) return refuse("--lockstep: this rig has workers, which need a clock");
    for (int i = 0; i < n_orders; i++)
        if (!read_order(&loop->pack, texts[i], ticks, orders, i, &orders[i])) return 0;
    if (out != NULL && !rows_create(&rows, out, &loop->pack, loop->width)) return 0;
    for (int64_t k = 0; k < ticks; k++) {
        missed = 0;
        for (int i = 0; i < n_orders; i++) {
            if (orders[i].tick != k) continue;
            missed += orders[i].missed;
            if (orders[i].missed > 0) continue;
            memcpy(loop->command.number, orders[i].command, sizeof orders[i].command);
            loop->command.cell[MESSAGE_CELLS - 1] = ++sequence;
        }
        loop->whole[loop->columns[TICK]] += missed + 1;
        loop->whole[loop->columns[MISSED]] = missed;
        int written = loop->command.cell[0] == 0 || rows_add(&rows, COMMAND, loop->command.cell, MESSAGE_CELLS);
        if (!loop_step(loop)) return 0;
        written = written && rows_add(&rows, ROW, loop->row, loop->width);
        if (!written) return refuse("%s: can't be written: %s", out, strerror(errno));
    }
    print_state(loop, loop->row, NULL);
    return rows_close(&rows) || refuse("%s: can't be written: %s", out, strerror(errno));
}

/* --- replay ------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t rows, differing, first_row, first_column;
} Compared;

static int is_nan_of(const int64_t *cell) {
    return (*cell & INT64_C(0x7FF0000000000000)) == INT64_C(0x7FF0000000000000) &&
           (*cell & INT64_C(0x000FFFFFFFFFFFFF)) != 0;
}

static void compare(Compared *found, const int64_t *recorded, const int64_t *computed, int64_t width) {
    int same = 1;
    for (int64_t i = 0; i < width; i++) {
        if (recorded[i] == computed[i] || (is_nan_of(&recorded[i]) && is_nan_of(&computed[i]))) continue;
        if (found->differing == 0 && same) found->first_row = found->rows, found->first_column = i;
        same = 0;
    }
    found->differing += !same;
    found->rows++;
}

/* Use the circuit of a record: three lengths, index, values. The program is tried with it first. */
static int use_circuit(Loop *loop, int64_t *cells, int64_t n) {
    const int64_t limit = (int64_t)1 << 32;
    if (n < 3 || cells[0] < 0 || cells[1] < 0 || cells[2] < 0 || cells[0] > limit || cells[1] > limit ||
        cells[2] > limit || cells[0] + cells[1] + 3 != n)
        return 0;
    return loop_use(loop, cells + 3, cells[0], (double *)(cells + 3 + cells[0]), cells[1], cells[2]) && loop_try(loop);
}

/* Do what a record says. */
static int replay_record(Loop *loop, const RecordHead *head, int64_t *cells, RowsFile *out, Compared *found) {
    switch (head->kind) {
    case CIRCUIT: return use_circuit(loop, cells, head->n);
    case START:
        if (head->n != loop->width) return 0;
        memcpy(loop->row, cells, (size_t)head->n * CELL);
        return 1;
    case COMMAND:
        if (head->n != MESSAGE_CELLS) return 0;
        memcpy(&loop->command, cells, sizeof loop->command);
        return 1;
    case ROW:
        if (head->n != loop->width) return 0;
        for (int64_t i = 0; i < loop->pack.head->columns.n; i++)
            loop->whole[loop->columns[i]] = cells[loop->columns[i]];
        if (!loop_tick(loop)) return 0;
        compare(found, cells, loop->whole, loop->width);
        return rows_add(out, ROW, loop->row, loop->width);
    default: return 0;
    }
}

/* A file of rows that is read, record by record. */
typedef struct {
    FILE *file;
    int64_t at, size; /* bytes */
} Source;

static int read_bytes(Source *source, void *bytes, int64_t n) {
    if (n > source->size - source->at || fread(bytes, 1, (size_t)n, source->file) != (size_t)n) return 0;
    source->at += n;
    return 1;
}

/* The cells of the next record, in new memory; NULL at the end, or where it is not complete or damaged. */
static int64_t *next_record(Source *source, RecordHead *head) {
    if (!read_bytes(source, head, sizeof *head)) return NULL;
    int64_t *cells = head->n < 0 || head->n > (source->size - source->at) / CELL ? NULL
                                                                                 : malloc((size_t)head->n * CELL + 1);
    if (cells != NULL && read_bytes(source, cells, head->n * CELL) &&
        crc32_of(head->kind, cells, (size_t)head->n * CELL) == head->checksum)
        return cells;
    source->at -= (int64_t)sizeof *head;
    free(cells);
    return NULL;
}

/* Open a file of rows of this rig, and read its header and text. */
static int open_source(Source *source, const char *path, const Loop *loop) {
    RowsHead head;
    errno = 0;
    source->file = fopen(path, "rb");
    if (source->file == NULL || fseek(source->file, 0, SEEK_END) != 0 || (source->size = ftell(source->file)) < 0)
        return refuse("%s: can't be read: %s", path, strerror(errno));
    rewind(source->file);
    if (!read_bytes(source, &head, sizeof head) || memcmp(head.magic, MAGIC, sizeof MAGIC) != 0)
        return refuse("%s: is not a file of rows", path);
    if (memcmp(head.fingerprint, loop->pack.head->fingerprint, FINGERPRINT) != 0 || head.width != loop->width)
        return refuse("%s: is not of this rig, or of another version of hilserver", path);
    int64_t is_possible = head.n_text >= 0 && head.n_text <= (source->size - source->at) / CELL;
    char *text = is_possible ? malloc((size_t)head.n_text * CELL + 1) : NULL;
    int is_whole = text != NULL && read_bytes(source, text, head.n_text * CELL) &&
                   crc32_of(0, text, (size_t)head.n_text * CELL) == head.checksum;
    free(text);
    return is_whole || refuse("%s: is damaged", path);
}

/* Replay a file of rows: its inputs and commands again, all values compared. 1 if all are bit-identical. */
int replay(Loop *loop, const char *path, const char *out) {
    Source source = {0};
    Compared found = {0};
    RowsFile rows = {.file = -1};
    RecordHead head;
    if (!open_source(&source, path, loop)) return 0;
    if (out != NULL && !rows_create(&rows, out, &loop->pack, loop->width)) return 0;
    for (int64_t *cells, at = source.at; (cells = next_record(&source, &head)) != NULL; at = source.at) {
        if (!replay_record(loop, &head, cells, &rows, &found))
            return refuse("%s: the record at byte %lld can't be replayed", path, (long long)at);
        if (head.kind != CIRCUIT) free(cells); /* a circuit remains where it is */
    }
    fclose(source.file);
    int is_whole = source.at == source.size;
    if (!is_whole) refuse("%s: is damaged or not complete from byte %lld on", path, (long long)source.at);
    if (!rows_close(&rows)) return refuse("%s: can't be written: %s", out, strerror(errno));
    if (found.differing > 0)
        return refuse("%lld of %lld rows differ, first row %lld in column %lld", (long long)found.differing,
                      (long long)found.rows, (long long)found.first_row, (long long)found.first_column);
    printf("{\"rows\": %lld, \"bit_identical\": true}\n", (long long)found.rows);
    return is_whole && (found.rows > 0 || refuse("%s: has no rows", path));
}
