/* Fuzz the reader of the loader's messages: whatever the text is, each field is a part of it, and
 * what surrounds a message does not change how it is read.
 *
 *   libFuzzer:  clang -DPYR_LIBFUZZER -fsanitize=fuzzer,address,undefined ...
 *   elsewhere:  gcc -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=address,undefined
 *                   -fno-sanitize-recover -iquote native native/loader_text.c
 *                   tests/native/fuzz_loader_text.c
 *               ./a.out SECONDS     composes messages, the same in each run, and 60,000 at least
 */
#include "loader_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))
/* What is joined lies on the heap, in a block of its size, so that a sanitizer guards its ends. */
#define JOIN(...)                                                                                  \
    join((const struct pyr_text[]){__VA_ARGS__}, LENGTH(((struct pyr_text[]){__VA_ARGS__})))
#define FATAL text_of("prog: error while loading shared libraries: ")
#define NOISE text_of("warming up\n\n")
#define MORE_NOISE text_of("\nprog: 3 warnings\n")

static struct pyr_text text_of(const char *string) {
    return (struct pyr_text){string, strlen(string)};
}

static struct pyr_text join(const struct pyr_text *parts, size_t count) {
    struct pyr_text joined = {NULL, 0};
    for (size_t i = 0; i < count; i++)
        joined.length += parts[i].length;
    char *bytes = malloc(joined.length ? joined.length : 1);
    CHECK(bytes != NULL);
    joined.at = bytes;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].length)
            memcpy(bytes, parts[i].at, parts[i].length);
        bytes += parts[i].length;
    }
    return joined;
}

static void drop(struct pyr_text joined) {
    free((char *)joined.at);
}

static int same(struct pyr_text one, struct pyr_text other) {
    return one.length == other.length && memcmp(one.at, other.at, one.length) == 0;
}

static void check_same(const struct pyr_loader_text *one, const struct pyr_loader_text *other) {
    CHECK(one->says == other->says);
    CHECK(same(one->file, other->file));
    CHECK(same(one->by, other->by));
    CHECK(same(one->name, other->name));
    CHECK(same(one->version, other->version));
    CHECK(same(one->reason, other->reason));
    CHECK(same(one->text, other->text));
}

static void check_within(struct pyr_text part, struct pyr_text whole) {
    if (part.length == 0)
        return;
    CHECK(part.at >= whole.at && part.length <= whole.length);
    CHECK((size_t)(part.at - whole.at) <= whole.length - part.length);
}

static void check(const struct pyr_loader_text *found, struct pyr_text whole) {
    CHECK(found->says <= PYR_SAYS_LIMIT);
    CHECK((found->text.length > 0) == (found->says != PYR_SAYS_NOTHING_KNOWN));
    check_within(found->text, whole);
    check_within(found->file, found->text);
    check_within(found->by, found->text);
    check_within(found->name, found->text);
    check_within(found->version, found->text);
    check_within(found->reason, found->text);
}

/* Takes `joined` over. */
static void check_stderr(struct pyr_text joined, const struct pyr_loader_text *expected) {
    struct pyr_loader_text found = pyr_loader_read_stderr(joined);
    check(&found, joined);
    check_same(&found, expected);
    drop(joined);
}

/* Of an object that was skipped the reason is found, whatever its name. */
static void check_skipped(struct pyr_text object, struct pyr_text why) {
    struct pyr_text captured = JOIN(NOISE, text_of("ERROR: ld.so: object '"), object,
                                    text_of("' from LD_PRELOAD cannot be preloaded ("), why,
                                    text_of("): ignored.\n"), MORE_NOISE);
    struct pyr_text reason;
    CHECK(pyr_loader_skipped(captured, object, &reason));
    check_within(reason, captured);
    CHECK(same(reason, why) || memmem(why.at, why.length, "): ignored.", 11) != NULL);
    drop(captured);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pyr_text text = JOIN({(const char *)data, size});
    struct pyr_loader_text captured = pyr_loader_read_stderr(text);
    check(&captured, text);
    check_stderr(JOIN(text, text_of("\n")), &captured);
    check_stderr(JOIN(NOISE, text, MORE_NOISE), &captured);

    /* dlerror's text may have several lines, a message on stderr has one. */
    struct pyr_loader_text error = pyr_loader_read_error(text);
    check(&error, text);
    const char *end = memchr(text.at, '\n', text.length);
    struct pyr_text line = {text.at, end ? (size_t)(end - text.at) : text.length};
    if (line.length > 0) {
        error = pyr_loader_read_error(line);
        check_stderr(JOIN(FATAL, text), &error);
        check_stderr(JOIN(NOISE, FATAL, text, MORE_NOISE), &error);
    }

    struct pyr_text reason;
    if (pyr_loader_skipped(text, line, &reason))
        check_within(reason, text);
    check_skipped(line, (struct pyr_text){text.at + line.length, text.length - line.length});
    drop(text);
    return 0;
}

#ifndef PYR_LIBFUZZER

enum {
    MIN_TEXTS = 60000,
    MAX_PARTS = 6,
    MAX_MESSAGES = 3,
    MAX_MUTATIONS = 4,
};

/* What a message is made of, and how it is to be read. */
struct message {
    struct pyr_text words;           /* on the heap, as the next is */
    struct pyr_text object;          /* of which any text is read as it is */
    struct pyr_loader_text expected; /* text is missing: the two in one */
};

static struct pyr_text pick(const char *const *strings, size_t count) {
    return text_of(strings[below(count)]);
}

#define PICK(strings) pick(strings, LENGTH(strings))

/* A path with anything in it. */
static struct pyr_text make_path(void) {
    static const char *const parts[] = {
        "/opt/lib.so",
        "lib c.so.1",
        "x",
        ": ",
        ":",
        "\n",
        " ",
        "'",
        "`",
        "(",
        ")",
        ",",
        "\xff",
        "\r",
        "prog: error while loading shared libraries: ",
        "prog: relocation error: ",
        ": cannot open shared object file: ",
        "No such file or directory",
        ": version `",
        "' not found",
        " (required by ",
        ": symbol ",
        ", version ",
        " not defined in file ",
        " with link time reference",
        ": undefined symbol: ",
        ": file too short",
        ": ELF file ",
        ": cannot allocate memory in static TLS block",
        "ERROR: ld.so: object '",
        "' from LD_PRELOAD cannot be preloaded",
        "): ignored.",
    };
    struct pyr_text made[MAX_PARTS];
    size_t count = 1 + below(MAX_PARTS);
    for (size_t i = 0; i < count; i++)
        made[i] = PICK(parts);
    return join(made, count);
}

static struct message make_open(void) {
    static const struct {
        const char *reason;
        enum pyr_complaint says;
    } reasons[] = {
        {"No such file or directory", PYR_SAYS_NOT_FOUND},
        {"Not a directory", PYR_SAYS_NOT_FOUND},
        {"Permission denied", PYR_SAYS_DENIED},
        {"Operation not permitted", PYR_SAYS_CANNOT_OPEN},
        {"Too many open files", PYR_SAYS_CANNOT_OPEN},
        {"Error 24", PYR_SAYS_CANNOT_OPEN},
        {"", PYR_SAYS_CANNOT_OPEN},
    };
    size_t i = below(LENGTH(reasons));
    struct pyr_text reason = text_of(reasons[i].reason), object = make_path();
    return (struct message){
        .words = JOIN(text_of("cannot open shared object file"), text_of(reason.length ? ": " : ""),
                      reason),
        .object = object,
        .expected = {.says = reasons[i].says, .file = object, .name = object, .reason = reason},
    };
}

static struct message make_other(void) {
    static const struct {
        const char *words;
        enum pyr_complaint says;
        int has_errno;
    } phrases[] = {
        {"file too short", PYR_SAYS_BAD_FILE, 0},
        {"wrong ELF class: ELFCLASS32", PYR_SAYS_BAD_FILE, 0},
        {"ELF file's phentsize not the expected size", PYR_SAYS_BAD_FILE, 0},
        {"shared object cannot be dlopen()ed", PYR_SAYS_BAD_FILE, 0},
        {"cannot read file data", PYR_SAYS_BAD_FILE, 1},
        {"failed to map segment from shared object", PYR_SAYS_LIMIT, 0},
        {"failed to map segment from shared object", PYR_SAYS_LIMIT, 1},
        {"cannot enable executable stack as shared object requires", PYR_SAYS_LIMIT, 1},
        {"cannot allocate memory in static TLS block", PYR_SAYS_LIMIT, 0},
    };
    static const char *const errors[] = {"Cannot allocate memory", "Permission denied", "Error 12"};
    size_t i = below(LENGTH(phrases));
    struct pyr_text words = text_of(phrases[i].words), error = PICK(errors), object = make_path();
    return (struct message){
        .words = phrases[i].has_errno ? JOIN(words, text_of(": "), error) : JOIN(words),
        .object = object,
        .expected = {.says = phrases[i].says,
                     .file = object,
                     .reason = phrases[i].has_errno ? error : words},
    };
}

static struct message make_version(void) {
    static const char *const names[] = {"/usr/bin/prog", "lib a.so", "x)", "it's `so'.so", "a:b"};
    struct pyr_text version = text_of("GLIBC_2.38"), by = PICK(names), object = make_path();
    return (struct message){
        .words = JOIN(text_of("version `"), version, text_of("' not found (required by "), by,
                      text_of(")")),
        .object = object,
        .expected = {.says = PYR_SAYS_VERSION, .file = object, .by = by, .name = version},
    };
}

static struct message make_symbol(void) {
    static const char *const names[] = {"cuInit", "_ZN2at4_ops5emptyE", "f@V", "a,b", "@"};
    static const char *const commas[] = {",", ""};
    struct pyr_text symbol = PICK(names), version = text_of("V_1.2"), object = make_path();
    struct message made = {
        .object = object,
        .expected = {.says = PYR_SAYS_UNDEFINED, .by = object, .name = symbol},
    };
    switch (below(3)) {
    case 0:
        made.words = JOIN(text_of("undefined symbol: "), symbol);
        return made;
    case 1:
        made.words = JOIN(text_of("undefined symbol: "), symbol, text_of(", version "), version);
        break;
    default:
        made.words = JOIN(text_of("symbol "), symbol, PICK(commas), text_of(" version "), version,
                          text_of(" not defined in file lib x.so with link time reference"),
                          text_of(below(2) ? " (no version symbols)" : ""));
        made.expected.says = PYR_SAYS_LINK_TIME;
        made.expected.file = text_of("lib x.so");
        break;
    }
    made.expected.version = version;
    return made;
}

/* Makes a message and checks that it is read as it was made. */
static struct pyr_text make_message(void) {
    static struct message (*const makers[])(void) = {
        make_open,
        make_other,
        make_version,
        make_symbol,
    };
    struct message made = makers[below(LENGTH(makers))]();
    struct pyr_text message = JOIN(made.object, text_of(": "), made.words);
    struct pyr_loader_text *expected = &made.expected;
    struct pyr_text *const fields[] = {
        &expected->file, &expected->by, &expected->name, &expected->version, &expected->reason,
    };
    for (size_t i = 0; i < LENGTH(fields); i++)
        if (fields[i]->at == NULL)
            *fields[i] = text_of("");
    expected->text = message;
    struct pyr_loader_text found = pyr_loader_read_error(message);
    check_same(&found, expected);
    drop(made.words);
    drop(made.object);
    return message;
}

/* Messages, some with a program's name, among paths; then mutated. */
static struct pyr_text make(void) {
    static const char *const starts[] = {
        "",
        "prog: ",
        "prog: error while loading shared libraries: ",
        "prog: symbol lookup error: ",
        "prog: relocation error: ",
    };
    struct pyr_text made = JOIN(text_of(""));
    for (uint64_t n = below(MAX_MESSAGES + 1); n > 0; n--) {
        struct pyr_text last = made, next = below(4) ? make_message() : make_path();
        made = JOIN(last, PICK(starts), next, text_of(below(4) ? "\n" : ""));
        drop(last);
        drop(next);
    }
    for (uint64_t n = below(2) ? 0 : below(MAX_MUTATIONS + 1); n > 0 && made.length > 0; n--) {
        size_t at = below(made.length);
        if (below(4))
            ((char *)made.at)[at] = "\n:` ')(,x\0"[below(10)];
        else
            made.length = at;
    }
    return made;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s SECONDS\n", argv[0]);
        return 2;
    }
    double end = now() + atof(argv[1]);
    unsigned long long executions = 0;
    for (; executions < MIN_TEXTS || now() < end; executions++) {
        struct pyr_text text = make();
        LLVMFuzzerTestOneInput((const uint8_t *)text.at, text.length);
        drop(text);
    }
    printf("%llu executions\n", executions);
    return 0;
}

#endif
