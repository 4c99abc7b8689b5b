/* Fuzz the judge and the line: any records, any captured text and any end of a child give an
 * outcome, and that a line of at most 80 printable characters.
 *
 *   libFuzzer:  clang -DPYR_LIBFUZZER -fsanitize=fuzzer,address,undefined ...
 *   elsewhere:  gcc -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=address,undefined
 *                   -fno-sanitize-recover -iquote native native/classify.c native/fault.c
 *                   native/loader_text.c native/status.c native/line.c native/records.c
 *                   native/elf.c tests/native/fuzz_classify.c
 *               ./a.out SECONDS     mutates frames and texts of its own making, the same in each
 * run
 */
#include "classify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "line.h"
#include "loader_text.h"

#define TARGET "/nowhere/of/fuzz/target.so"

/* What comes before the records and the captured text in an input. */
struct header {
    uint32_t used;
    uint32_t wait_status;
    uint32_t records_size;
    uint32_t checks;
    uint8_t mode, stub, end, name_size, forked;
};

static void check_line(const struct pyr_line_check *checks, uint32_t count) {
    char line[PYR_LINE_WIDTH + 1];
    memset(line, 0x7f, sizeof line);
    pyr_line_write(checks, count, line);
    CHECK(memchr(line, '\0', sizeof line) != NULL);
    for (const char *at = line; *at; at++)
        CHECK(*at >= 0x20 && *at < 0x7f);
    switch (pyr_line_verdict(checks, count)) {
    case PYR_OK:
        CHECK(strncmp(line, "OK ", 3) == 0);
        break;
    case PYR_UNKNOWN:
        CHECK(strncmp(line, "UNKNOWN ", 8) == 0);
        break;
    default:
        CHECK(strncmp(line, "FAIL ", 5) == 0);
        break;
    }
}

static void check_outcome(const struct pyr_outcome *outcome, const char *name) {
    CHECK(outcome->status < PYR_STATUSES);
    CHECK(outcome->length <= sizeof outcome->fields);
    size_t ends = 0;
    for (uint32_t i = 0; i < outcome->length; i++)
        ends += outcome->fields[i] == '\0';
    CHECK(ends == 5 && outcome->fields[outcome->length - 1] == '\0');
    char detail[PYR_WIRE_TEXT_MAX];
    pyr_outcome_detail(outcome, detail);
    CHECK(memchr(detail, '\0', sizeof detail) != NULL);
    struct pyr_line_check check = {
        .verdict = (int32_t)pyr_status_verdict(outcome->status),
        .status = pyr_status_name(outcome->status),
        .detail = detail,
        .name = name,
    };
    check_line(&check, 1);
    /* As many as there may be, with a status that is longer than any. */
    struct pyr_line_check several[3] = {check, check, check};
    several[1].status = name;
    several[2].detail = name;
    check_line(several, 3);
}

/* What a library that loads has at least shown. */
static void check_loadable(const struct pyr_trial *trial, const struct pyr_outcome *outcome) {
    bool started = trial->forked, finished = false, failed = false, other = false, next = false;
    struct pyr_wire_frame head;
    const char *text;
    for (uint32_t at = 0; pyr_records_next(trial->records, &at, &head, &text);) {
        started = started || head.kind == PYR_WIRE_STARTED;
        finished = finished || head.kind == PYR_WIRE_FINISHED;
        if (head.kind == PYR_WIRE_LOAD && !(head.a & PYR_WIRE_LOAD_PRESENT)) {
            failed = head.b != 1 || (head.a & PYR_WIRE_LOAD_LAZY);
        }
        other = other || (head.kind == PYR_WIRE_UNDEFINED && !trial->bound);
        if (head.kind == PYR_WIRE_NEXT && head.b == PYR_WIRE_NEXT_OPENED) {
            next = head.length > 0;
        } else if (head.kind == PYR_WIRE_NEXT) {
            next = next && head.b != PYR_WIRE_NEXT_LOADED;
        }
    }
    if (outcome->status != PYR_LOADABLE)
        return;
    CHECK(trial->child.end == PYR_CHILD_ENDED && finished && !other);
    CHECK(trial->mode == PYR_PRELOAD ? !trial->stub && !next : started && !failed);
}

/* Texts lie on the heap, in blocks of their size, where a sanitizer guards the end. */
static char *copy(const uint8_t *data, size_t size, int terminated) {
    char *bytes = malloc(size + 1);
    CHECK(bytes != NULL);
    if (size)
        memcpy(bytes, data, size);
    if (terminated)
        bytes[size] = '\0';
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct pyr_records records;
    struct header header;
    if (size < sizeof header)
        return 0;
    memcpy(&header, data, sizeof header);
    data += sizeof header;
    size -= sizeof header;

    size_t name_size = header.name_size < size ? header.name_size : size;
    char *name = copy(data, name_size, 1);
    data += name_size;
    size -= name_size;
    size_t frames = header.records_size < size ? header.records_size : size;
    frames = frames < sizeof records.bytes ? frames : sizeof records.bytes;
    memcpy(records.bytes, data, frames);
    records.used = header.used;
    size_t length = size - frames;
    char *captured = malloc(length ? length : 1);
    CHECK(captured != NULL);
    if (length)
        memcpy(captured, data + frames, length);

    struct pyr_trial trial = {
        .name = TARGET,
        .mode = header.mode & 1 ? PYR_PRELOAD : PYR_DLOPEN,
        .stub = header.stub & 1,
        .bound = header.stub & 2,
        .forked = header.forked & 1,
        .python = header.forked & 2,
        .child = {.pid = 1,
                  .end = header.end % 8 ? PYR_CHILD_ENDED
                                        : (enum pyr_child_end)(PYR_CHILD_KILLED + header.end % 2),
                  .status = (int)(header.wait_status & 0xffff)},
        .records = &records,
        .captured = {captured, length},
    };
    struct pyr_outcome outcome;
    pyr_classify(&trial, &outcome);
    check_outcome(&outcome, name);
    check_loadable(&trial, &outcome);
    pyr_classify_broken(&trial, &outcome);
    check_outcome(&outcome, name);
    pyr_classify_late(&outcome);
    check_outcome(&outcome, name);
    free(captured);
    free(name);
    return 0;
}

#ifndef PYR_LIBFUZZER

enum {
    ROOM = 1 << 17,
    MAX_FRAMES = 8,
    MAX_WORDS = 12,
    MAX_MUTATIONS = 4,
};

static size_t add_words(uint8_t *to) {
    static const char *const parts[] = {
        TARGET,
        "/etc/passwd",
        "x",
        ": ",
        "\n",
        " ",
        "'",
        ",",
        "cuInit",
        "cudaMalloc",
        "PyErr_Occurred",
        "@",
        "\xff",
        ": error while loading shared libraries: ",
        ": symbol lookup error: ",
        ": cannot open shared object file: ",
        "No such file or directory",
        "Permission denied",
        ": version `",
        "' not found",
        " (required by ",
        ": symbol ",
        ", version ",
        " not defined in file ",
        " with link time reference",
        ": undefined symbol: ",
        ": file too short",
        ": invalid ELF header",
        ": only ET_DYN ",
        "libcuda.so.1",
    };
    size_t size = 0;
    for (uint64_t n = below(MAX_WORDS + 1); n > 0; n--) {
        const char *part = parts[below(sizeof parts / sizeof *parts)];
        uint64_t times = below(20) ? 1 : 1 + below(60);
        for (; times > 0 && size + 64 < PYR_WIRE_TEXT_MAX; times--) {
            memcpy(to + size, part, strlen(part));
            size += strlen(part);
        }
    }
    return size;
}

static size_t add_frame(uint8_t *to, enum pyr_wire_kind kind) {
    static const int64_t values[] = {0, 1, 2, 3, 4, 34, -1, -2, 13000};
    uint8_t *text = to + sizeof(struct pyr_wire_frame);
    struct pyr_wire_frame head = {
        .magic = PYR_WIRE_MAGIC,
        .version = PYR_WIRE_VERSION,
        .kind = (uint16_t)kind,
        .length = (uint32_t)add_words(text),
        .a = values[below(sizeof values / sizeof *values)],
        .b = values[below(sizeof values / sizeof *values)],
    };
    if (kind == PYR_WIRE_SYMBOL && below(4)) {
        const char bypassed[] = "cudaMalloc\0/elsewhere.so\0" TARGET;
        head.length = sizeof bypassed - 1;
        memcpy(text, bypassed, head.length);
    }
    memcpy(to, &head, sizeof head);
    return sizeof head + head.length;
}

/* Mostly in the order in which a child posts them. */
static size_t add_frames(uint8_t *to) {
    const uint64_t kinds = PYR_WIRE_FINISHED - PYR_WIRE_STARTED + 1;
    size_t size = below(4) ? add_frame(to, PYR_WIRE_STARTED) : 0;
    for (uint64_t n = below(MAX_FRAMES + 1); n > 0; n--)
        size += add_frame(to + size, (enum pyr_wire_kind)(PYR_WIRE_STARTED + below(kinds)));
    return size + (below(4) ? add_frame(to + size, PYR_WIRE_FINISHED) : 0);
}

static size_t make(uint8_t *bytes) {
    static const uint32_t statuses[] = {0, 0x7f00, 0x100, 0x300, 11, 9, 0x86, 0x137f, 64, 0xffff};
    struct header header = {
        .wait_status = statuses[below(sizeof statuses / sizeof *statuses)],
        .checks = (uint32_t)random_bits(),
        .mode = (uint8_t)below(2),
        .stub = (uint8_t)below(4),
        .end = (uint8_t)below(256),
        .forked = (uint8_t)below(4),
        .name_size = (uint8_t)below(256),
    };
    size_t size = sizeof header;
    for (size_t i = 0; i < header.name_size; i++)
        bytes[size++] = (uint8_t)(below(8) ? 'a' + below(26) : below(256));
    header.records_size = header.used = (uint32_t)add_frames(bytes + size);
    size += header.records_size;
    memcpy(bytes, &header, sizeof header);
    return size + add_words(bytes + size);
}

static void mutate(uint8_t *bytes, size_t size) {
    for (uint64_t n = below(MAX_MUTATIONS + 1); n > 0; n--) {
        uint64_t at = below(size);
        uint32_t values[] = {0,
                             1,
                             PYR_WIRE_TEXT_MAX + 1,
                             INT32_MAX,
                             UINT32_MAX,
                             PYR_RECORDS_SIZE,
                             (uint32_t)random_bits()};
        uint32_t value = values[below(sizeof values / sizeof *values)];
        if (below(2))
            bytes[at] ^= (uint8_t)(1u << below(8));
        else
            memcpy(bytes + at, &value, size - at < sizeof value ? size - at : sizeof value);
    }
}

int main(int argc, char **argv) {
    static uint8_t bytes[ROOM];
    if (argc != 2) {
        fprintf(stderr, "usage: %s SECONDS\n", argv[0]);
        return 2;
    }
    double end = now() + atof(argv[1]);
    unsigned long long executions = 0;
    for (; now() < end; executions++) {
        size_t size = make(bytes);
        mutate(bytes, size);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    printf("%llu executions\n", executions);
    return 0;
}

#endif
