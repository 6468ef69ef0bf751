/* The rig's file, rig.pack: read as a whole, checked, and its addresses set. */
#include "runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[8] = {'H', 'I', 'L', 'P', 'A', 'C', 'K', '1'};
static const char FILE_NAME[] = "rig.pack";

/* All bytes of a file in new memory; NULL if it can't be read. */
char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    char *bytes = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long end = ftell(file);
        rewind(file);
        *size = end < 0 ? 0 : (size_t)end;
        bytes = end < 0 ? NULL : malloc(*size + 1);
        if (bytes != NULL && fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}

/* CRC-32 (IEEE 802.3), continued from an earlier one; the first is continued from 0. */
uint32_t crc32_of(uint32_t crc, const void *bytes, size_t n) {
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
            table[i] = c;
        }
    crc = ~crc;
    for (const unsigned char *byte = bytes; n > 0; n--, byte++) crc = table[(crc ^ *byte) & 255] ^ (crc >> 8);
    return ~crc;
}

int64_t *cells_of(const Pack *pack, Part part) { return pack->image + part.at; }

const char *text_of(const Pack *pack, Part part) { return (const char *)cells_of(pack, part); }

static int is_inside(Part part, int64_t n) {
    return part.at >= 0 && part.n >= 0 && part.at <= n && part.n <= n - part.at;
}

static int is_text(const Pack *pack, Part part) {
    return part.n > 0 && text_of(pack, part)[part.n * CELL - 1] == '\0';
}

/* Whether these cells hold columns of the row. */
static int are_columns(const Pack *pack, Part part) {
    const int64_t *column = cells_of(pack, part);
    for (int64_t i = 0; i < part.n; i++)
        if (column[i] < 0 || column[i] >= pack->head->row.n) return 0;
    return 1;
}

/* Whether a device with a worker has its place in the row, and its parts in the image. */
static int is_worker(const Pack *pack, const Worker *w, int64_t n) {
    const Head *h = pack->head;
    const int64_t numbers[] = {w->first_slot, w->n_inputs, w->first_output, w->n_outputs, w->error_column};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] < 0 || numbers[i] >= h->row.n) return 0;
    int64_t inputs = w->first_slot + w->n_inputs, outputs = w->first_output + w->n_outputs, width = h->row.n;
    return is_inside(w->name, n) && is_inside(w->outputs, n) && is_text(pack, w->name) &&
           w->outputs.n == w->n_outputs && are_columns(pack, w->outputs) && h->raw + inputs <= width &&
           h->age + inputs <= width && h->confirmed + outputs <= width && h->confirmed_age + outputs <= width;
}

/* Whether all parts are in the image. `n`: its cells. */
static int has_all_parts(const Head *h, int64_t n) {
    const Part parts[] = {h->programs, h->plan, h->index, h->value, h->row, h->columns, h->rest, h->safe, h->devices,
                          h->dimensions, h->workers, h->name, h->words, h->about};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!is_inside(parts[i], n)) return 0;
    return 1;
}

/* Whether this is the index of a circuit, without the address of code that another process had for it. */
int is_index(const Head *head, const int64_t *index, int64_t n) {
    return head->circuit_code >= 0 && head->circuit_code < head->circuit_cells && n >= head->circuit_cells &&
           index[head->circuit_code] == 0;
}

/* Whether the tables of a plan follow one another up to its end: it begins with the place of each, and of the end. */
static int is_plan(const int64_t *plan, int64_t n) {
    if (n < 1 || plan[0] < 2 || plan[0] > n || plan[plan[0] - 1] != n) return 0;
    for (int64_t i = 1; i < plan[0]; i++)
        if (plan[i] < plan[i - 1]) return 0;
    return plan[1] > plan[0]; /* the first one has a record */
}

/* Set the address of an array, which is given by its first cell, if it is as long in the image as its shape says. */
static int set_array(const Pack *pack, int64_t *array, int64_t dimensions, int64_t n) {
    if (*array < 0 || *array > n) return 0;
    int64_t room = n - *array;
    for (int64_t i = 1; i <= dimensions; i++) {
        if (array[i] < 0 || array[i] > room) return 0;
        if (array[i] > 0) room /= array[i];
    }
    *array = (int64_t)(intptr_t)(pack->image + *array);
    return 1;
}

/* Set the addresses of the simulated devices: of their frames, and of the arrays in these. */
static int set_devices(const Pack *pack, int64_t n) {
    const Head *h = pack->head;
    enum { MOST_ARRAYS = 64 };
    int64_t dimensions[MOST_ARRAYS], *frame = cells_of(pack, h->devices), length = 0;
    if (h->dimensions.n > MOST_ARRAYS) return 0;
    memcpy(dimensions, cells_of(pack, h->dimensions), (size_t)h->dimensions.n * CELL);
    for (int64_t i = 0; i < h->dimensions.n; length += 1 + dimensions[i++])
        if (dimensions[i] < 1 || dimensions[i] > 2) return 0;
    for (int64_t i = 0; i < h->devices.n; i++) {
        if (!is_inside((Part){frame[i], length}, n)) return 0;
        int64_t *array = pack->image + frame[i];
        frame[i] = (int64_t)(intptr_t)array;
        for (int64_t k = 0; k < h->dimensions.n; array += 1 + dimensions[k++])
            if (!set_array(pack, array, dimensions[k], n) ||
                (k == 0 && !is_index(h, (int64_t *)(intptr_t)array[0], array[1])))
                return 0;
    }
    return 1;
}

/* Whether all else that the header says of the image is so. */
static int is_consistent(const Pack *pack, int64_t n) {
    const Head *h = pack->head;
    const int64_t places[] = {h->confirmed, h->confirmed_age, h->raw, h->age, h->mode, h->fault, h->command, h->result};
    const int64_t limit = (int64_t)1 << 32;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i] < 0 || places[i] >= h->row.n) return 0;
    if (h->n_work < 0 || h->n_work > limit || h->period_ns < 1000 || h->period_ns > 1000 * limit) return 0;
    if (h->ramp_ticks < 0 || h->ramp_ticks > limit || h->programs.n != 2 || h->rest.n != h->safe.n) return 0;
    if (h->columns.n < FIRST_READING || !are_columns(pack, h->columns)) return 0;
    if (!is_plan(cells_of(pack, h->plan), h->plan.n) || !is_index(h, cells_of(pack, h->index), h->index.n)) return 0;
    if (!are_columns(pack, h->rest) || !is_text(pack, h->name) || !is_text(pack, h->words)) return 0;
    if (!is_text(pack, h->about) || h->workers.n % (int64_t)(sizeof(Worker) / CELL) != 0) return 0;
    const Worker *worker = (const Worker *)cells_of(pack, h->workers);
    for (int64_t i = 0; i < h->workers.n / (int64_t)(sizeof *worker / CELL); i++)
        if (!is_worker(pack, &worker[i], n)) return 0;
    return 1;
}

/* Read the rig in a folder; 0, with a message, if it can't be used. */
int pack_read(Pack *pack, const char *folder) {
    char path[LONGEST];
    size_t size = 0;
    if (snprintf(path, sizeof path, "%s/%s", folder, FILE_NAME) >= (int)sizeof path)
        return refuse("%s: the name is too long", folder);
    errno = 0;
    if ((pack->bytes = read_file(path, &size)) == NULL) return refuse("%s: can't be read: %s", path, strerror(errno));
    const Head *h = pack->head = (const Head *)pack->bytes;
    if (size < sizeof *h || memcmp(h->magic, MAGIC, sizeof MAGIC) != 0)
        return refuse("%s: is not a packed rig. Make one with: hilserver pack RIG.toml FOLDER", path);
    if (memcmp(h->fingerprint, HILSERVER_FINGERPRINT, FINGERPRINT) != 0)
        return refuse("%s: was packed by another version of hilserver (%.16s, this runner is of %s). Pack it again",
                      path, h->fingerprint, HILSERVER_FINGERPRINT);
    size_t start = offsetof(Head, size);
    if (h->size != (int64_t)size || (size - sizeof *h) % CELL != 0)
        return refuse("%s: is not complete: it has %zu bytes, and should have %lld", path, size, (long long)h->size);
    if (crc32_of(0, pack->bytes + start, size - start) != h->checksum)
        return refuse("%s: is damaged: its checksum does not match. Send it again", path);
    pack->image = (int64_t *)(pack->bytes + sizeof *h);
    int64_t n = (int64_t)((size - sizeof *h) / CELL);
    return (has_all_parts(h, n) && set_devices(pack, n) && is_consistent(pack, n)) || refuse("%s: is damaged", path);
}

/* --- words -------------------------------------------------------------------------------------------------------- */

/* The name with this number, among those of a kind; the number itself if there is none. */
const char *name_of(const Pack *pack, const char *kind, int64_t number, char *buffer, size_t size) {
    char start[64];
    int length = snprintf(start, sizeof start, "%s %lld ", kind, (long long)number);
    for (const char *line = text_of(pack, pack->head->words); *line != '\0';) {
        const char *end = strchr(line, '\n');
        if (end == NULL) break;
        if (strncmp(line, start, (size_t)length) == 0) {
            snprintf(buffer, size, "%.*s", (int)(end - line - length), line + length);
            return buffer;
        }
        line = end + 1;
    }
    snprintf(buffer, size, "%lld", (long long)number);
    return buffer;
}

/* The number of a name among those of a kind; -1 if there is none. */
int64_t number_of(const Pack *pack, const char *kind, const char *name) {
    size_t n = strlen(kind), length = strlen(name);
    for (const char *line = text_of(pack, pack->head->words); *line != '\0';) {
        const char *end = strchr(line, '\n');
        if (end == NULL) break;
        if (strncmp(line, kind, n) == 0 && line[n] == ' ') {
            char *after;
            long long number = strtoll(line + n, &after, 10);
            if (end - after - 1 == (long)length && strncmp(after + 1, name, length) == 0) return number;
        }
        line = end + 1;
    }
    return -1;
}
