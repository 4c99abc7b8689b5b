#include "classify.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "elf.h"
#include "fault.h"
#include "loader_text.h"

#define DRIVER_SONAME "libcuda.so.1"

enum {
    LOADER_FAILED = 127,
    VERSION_FAILED = 1, /* the loader's exit status for a missing symbol version */
    STUB_LIBRARY = 34,  /* cuda.h: the toolkit's link-time libcuda answers every call so */
    PATH_SIZE = PYR_WIRE_TEXT_MAX + 1,
};

/* What the frames say. */
struct facts {
    bool started;
    bool finished;
    bool present;
    bool attempted;
    bool loaded;                 /* by the last attempt */
    bool lazily;                 /* the last attempt was a lazy one */
    bool stub;                   /* the last attempt had the stub driver */
    bool false_driver;           /* a libcuda is mapped that is none */
    struct pyr_text first_error; /* empty if the first attempt succeeded */
    struct pyr_text last_error;  /* of the last attempt that failed */
    struct pyr_text symbol;      /* a function that comes from `owner`, not from the target */
    struct pyr_text owner;
    struct pyr_text next; /* the path of what is opened after a preload, or empty */
    bool next_loaded;
    struct pyr_text next_error;
};

struct fields {
    struct pyr_text name, version, file, by, text;
};

/* --- the outcome */

/* A NUL within a text would shift the fields after it. */
static void append_field(struct pyr_outcome *outcome, struct pyr_text text, size_t kept) {
    size_t room = sizeof outcome->fields - outcome->length - kept - 1;
    for (size_t i = 0; i < text.length && i < room; i++) {
        outcome->fields[outcome->length++] = text.at[i] ? text.at[i] : '?';
    }
    outcome->fields[outcome->length++] = '\0';
}

static void settle(struct pyr_outcome *outcome, enum pyr_status status, struct fields fields) {
    const struct pyr_text all[] = {fields.name, fields.version, fields.file, fields.by,
                                   fields.text};
    const size_t count = sizeof all / sizeof *all;
    outcome->status = status;
    outcome->stub = false;
    outcome->stuck = 0;
    outcome->length = 0;
    for (size_t i = 0; i < count; i++) {
        append_field(outcome, all[i], count - 1 - i);
    }
}

void pyr_outcome_detail(const struct pyr_outcome *outcome, char detail[PYR_WIRE_TEXT_MAX]) {
    const char *version = outcome->fields + strlen(outcome->fields) + 1;
    char *end = stpcpy(detail, outcome->fields);
    if (*version) {
        stpcpy(stpcpy(end, "@"), version);
    }
}

void pyr_classify_late(struct pyr_outcome *outcome) {
    settle(outcome, PYR_TIMED_OUT, (struct fields){.name = {"", 0}});
}

void pyr_classify_hostile(struct pyr_outcome *outcome) {
    settle(outcome, PYR_CRASHED, (struct fields){.name = {"", 0}});
}

/* --- the file itself */

bool pyr_classify_file(const char *name, struct pyr_outcome *outcome) {
    static struct pyr_elf elf;
    enum pyr_status status = pyr_fault_find(name, &elf);
    if (status == PYR_LOADABLE) {
        return false;
    }
    settle(outcome, status, (struct fields){.file = pyr_text_of(name)});
    return true;
}

/* --- what the frames say */

static bool path_copy(char path[PATH_SIZE], struct pyr_text text) {
    if (text.length >= PATH_SIZE || memchr(text.at, '\0', text.length)) {
        return false;
    }
    memcpy(path, text.at, text.length);
    path[text.length] = '\0';
    return true;
}

static bool same_file(const char *one, const char *other) {
    struct stat a, b;
    if (stat(one, &a) < 0 || stat(other, &b) < 0) {
        return strcmp(one, other) == 0;
    }
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Takes what comes before the first NUL off `text`. */
static struct pyr_text part(struct pyr_text *text) {
    const char *end = memchr(text->at, '\0', text->length);
    size_t length = end ? (size_t)(end - text->at) : text->length;
    struct pyr_text first = {text->at, length};
    *text = (struct pyr_text){text->at + length + (end != NULL), text->length - length - !!end};
    return first;
}

static void note_load(struct facts *facts, const struct pyr_wire_frame *head,
                      struct pyr_text text) {
    if (head->a & PYR_WIRE_LOAD_PRESENT) {
        facts->present = head->b == 1;
        return;
    }
    facts->loaded = head->b == 1;
    facts->lazily = head->a & PYR_WIRE_LOAD_LAZY;
    facts->stub = head->a & PYR_WIRE_LOAD_STUB;
    if (!facts->loaded) {
        facts->last_error = text;
        facts->first_error = facts->attempted ? facts->first_error : text;
    }
    facts->attempted = true;
}

/* Text: symbol, NUL, object that the process gets it from, NUL, object that the target would. */
static void note_symbol(struct facts *facts, const struct pyr_trial *trial, struct pyr_text text) {
    struct pyr_text name = part(&text), actual = part(&text), own = part(&text);
    char from[PATH_SIZE], wanted[PATH_SIZE];
    if (facts->symbol.length == 0 && path_copy(from, actual) && path_copy(wanted, own) &&
        strcmp(from, wanted) != 0 && same_file(wanted, trial->name)) {
        facts->symbol = name;
        facts->owner = actual;
    }
}

static void note_next(struct facts *facts, int64_t what, struct pyr_text text) {
    if (what == PYR_WIRE_NEXT_OPENED) {
        facts->next = text;
    }
    facts->next_loaded = what == PYR_WIRE_NEXT_LOADED;
    facts->next_error = what == PYR_WIRE_NEXT_FAILED ? text : facts->next_error;
}

static void note(struct facts *facts, const struct pyr_trial *trial,
                 const struct pyr_wire_frame *head, struct pyr_text text) {
    switch (head->kind) {
    case PYR_WIRE_STARTED:
        facts->started = true;
        break;
    case PYR_WIRE_FINISHED:
        facts->finished = true;
        break;
    case PYR_WIRE_LOAD:
        note_load(facts, head, text);
        break;
    case PYR_WIRE_DRIVER:
        facts->false_driver = head->b == PYR_WIRE_NO_FUNCTION || head->b == STUB_LIBRARY;
        break;
    case PYR_WIRE_SYMBOL:
        note_symbol(facts, trial, text);
        break;
    case PYR_WIRE_NEXT:
        note_next(facts, head->b, text);
        break;
    default:
        break;
    }
}

static struct facts facts_of(const struct pyr_trial *trial) {
    const struct pyr_text none = {"", 0};
    struct facts facts = {
        .started = trial->forked,
        .first_error = none,
        .last_error = none,
        .symbol = none,
        .owner = none,
        .next = none,
        .next_error = none,
    };
    struct pyr_wire_frame head;
    const char *text;
    for (uint32_t at = 0; pyr_records_next(trial->records, &at, &head, &text);) {
        note(&facts, trial, &head, (struct pyr_text){text, head.length});
    }
    return facts;
}

bool pyr_trial_started(const struct pyr_trial *trial) {
    return facts_of(trial).started;
}

/* --- the verdict */

/* Spelled as Python's signal module does. */
static const char *signal_name(int number) {
    static const char *const names[] = {
        [SIGHUP] = "SIGHUP",       [SIGINT] = "SIGINT",       [SIGQUIT] = "SIGQUIT",
        [SIGILL] = "SIGILL",       [SIGTRAP] = "SIGTRAP",     [SIGABRT] = "SIGABRT",
        [SIGBUS] = "SIGBUS",       [SIGFPE] = "SIGFPE",       [SIGKILL] = "SIGKILL",
        [SIGUSR1] = "SIGUSR1",     [SIGSEGV] = "SIGSEGV",     [SIGUSR2] = "SIGUSR2",
        [SIGPIPE] = "SIGPIPE",     [SIGALRM] = "SIGALRM",     [SIGTERM] = "SIGTERM",
        [SIGVTALRM] = "SIGVTALRM", [SIGPROF] = "SIGPROF",     [SIGXCPU] = "SIGXCPU",
        [SIGXFSZ] = "SIGXFSZ",     [SIGIO] = "SIGIO",         [SIGPWR] = "SIGPWR",
        [SIGSYS] = "SIGSYS",       [SIGSTKFLT] = "SIGSTKFLT",
    };
    bool known = number > 0 && (size_t)number < sizeof names / sizeof *names;
    return known ? names[number] : NULL;
}

/* `SIGSEGV` or `exit status 3`, and what the child said. */
static void settle_ended(struct pyr_outcome *outcome, enum pyr_status status,
                         const struct pyr_trial *trial) {
    int ended = trial->child.status;
    const char *name = WIFSIGNALED(ended) ? signal_name(WTERMSIG(ended)) : NULL;
    char number[32];
    snprintf(number, sizeof number, WIFSIGNALED(ended) ? "signal %d" : "exit status %d",
             WIFSIGNALED(ended) ? WTERMSIG(ended) : WEXITSTATUS(ended));
    settle(outcome, status,
           (struct fields){.name = pyr_text_of(name ? name : number), .text = trial->captured});
}

static void settle_late(const struct pyr_trial *trial, struct pyr_text file,
                        struct pyr_outcome *outcome) {
    settle(outcome, PYR_TIMED_OUT, (struct fields){.file = file});
    outcome->stuck = trial->child.end == PYR_CHILD_STUCK ? trial->child.pid : 0;
}

static bool is_late(const struct pyr_trial *trial) {
    return trial->child.end != PYR_CHILD_ENDED;
}

void pyr_classify_broken(const struct pyr_trial *trial, struct pyr_outcome *outcome) {
    if (is_late(trial)) {
        settle_late(trial, pyr_text_of(""), outcome);
    } else {
        settle_ended(outcome, PYR_BROKEN_ENVIRONMENT, trial);
    }
}

/* Of the file that the loader names. Without a slash that is a name that it searched, and not a
 * file in this directory. */
static enum pyr_status fault_of(struct pyr_text file) {
    static struct pyr_elf elf;
    char path[PATH_SIZE];
    bool is_path = path_copy(path, file) && strchr(path, '/');
    return is_path ? pyr_fault_find(path, &elf) : PYR_LOADABLE;
}

/* A process without an interpreter says nothing about a Python extension. */
static enum pyr_status undefined_status(const struct pyr_trial *trial, struct pyr_text symbol) {
    if (trial->mode == PYR_PRELOAD || !pyr_loader_is_python_symbol(symbol)) {
        return PYR_UNDEFINED_SYMBOL;
    }
    return trial->python ? PYR_WRONG_PYTHON : PYR_NO_PYTHON;
}

static void refused(const struct pyr_trial *trial, const struct pyr_loader_text *said,
                    struct pyr_outcome *outcome) {
    struct fields fields = {said->name, said->version, said->file, said->by, said->text};
    enum pyr_status status = PYR_NOT_LOADABLE, fault;
    switch (pyr_loader_finds_no(said, DRIVER_SONAME) ? PYR_SAYS_NOT_FOUND : said->says) {
    case PYR_SAYS_NOT_FOUND:
        status = PYR_MISSING_DEPENDENCY;
        fields.name = said->file;
        if (pyr_text_is(said->file, trial->name)) {
            status = PYR_NOT_FOUND;
            fields.name = pyr_text_of("");
        }
        break;
    case PYR_SAYS_VERSION:
    case PYR_SAYS_LINK_TIME:
        status = PYR_VERSION_MISMATCH;
        break;
    case PYR_SAYS_UNDEFINED:
        status = undefined_status(trial, said->name);
        if (trial->bound) {
            fields.text = pyr_text_of(""); /* without LD_BIND_NOW the process starts */
        }
        break;
    default:
        fields.name = fields.version = pyr_text_of("");
        fault = fault_of(said->file);
        status = said->says == PYR_SAYS_DENIED ? PYR_PERMISSION : PYR_NOT_LOADABLE;
        if (fault == PYR_LOADABLE && pyr_loader_is_refused(said)) {
            fields.name = said->reason;
        }
        status = fault == PYR_LOADABLE ? status : fault;
        break;
    }
    settle(outcome, status, fields);
}

static void refused_with(const struct pyr_trial *trial, struct pyr_text error,
                         struct pyr_outcome *outcome) {
    struct pyr_loader_text said = pyr_loader_read_error(error);
    refused(trial, &said, outcome);
}

/* A process without the driver, or with something else in its place. */
static bool is_for_driver(struct pyr_text error) {
    return pyr_loader_is_driver_symbol(pyr_loader_read_error(error).name);
}

static void no_driver(struct pyr_outcome *outcome, bool stub) {
    settle(outcome, PYR_NO_DRIVER, (struct fields){.name = pyr_text_of(DRIVER_SONAME)});
    outcome->stub = stub;
}

/* Finds the first symbol that nothing defines, and the object that uses it. Those of the driver
 * do not count in a process without one. Those of Python come last: they are less than the others.
 */
static bool find_undefined(const struct pyr_trial *trial, bool driverless, struct fields *found) {
    struct fields first = {.name = {NULL, 0}};
    struct pyr_wire_frame head;
    const char *bytes;
    for (uint32_t at = 0; pyr_records_next(trial->records, &at, &head, &bytes);) {
        struct pyr_text text = {bytes, head.length}, symbol = part(&text);
        if (head.kind != PYR_WIRE_UNDEFINED ||
            (driverless && pyr_loader_is_driver_symbol(symbol))) {
            continue;
        }
        bool python = undefined_status(trial, symbol) != PYR_UNDEFINED_SYMBOL;
        if (!python || !first.name.at) {
            first = (struct fields){.name = symbol, .by = part(&text)};
        }
        if (!python) {
            break;
        }
    }
    const char *at = first.name.at ? memchr(first.name.at, '@', first.name.length) : NULL;
    if (at && at > first.name.at) {
        size_t length = (size_t)(at - first.name.at);
        first.version = (struct pyr_text){at + 1, first.name.length - length - 1};
        first.name.length = length;
    }
    *found = first;
    return first.name.at != NULL;
}

/* A lazy load succeeded after a load with RTLD_NOW did not: it is never OK. The symbols that the
 * child found undefined explain why, else the loader's own words do. */
static void loaded(const struct pyr_trial *trial, const struct facts *facts, bool stub,
                   struct pyr_outcome *outcome) {
    bool driverless = stub || facts->false_driver;
    struct fields undefined;
    if (!trial->bound && find_undefined(trial, driverless, &undefined)) {
        settle(outcome, undefined_status(trial, undefined.name), undefined);
        outcome->stub = stub;
    } else if (facts->lazily && !(driverless && is_for_driver(facts->last_error))) {
        refused_with(trial, facts->last_error, outcome);
    } else if (driverless) {
        no_driver(outcome, stub);
    } else {
        settle(outcome, PYR_LOADABLE, (struct fields){.name = {"", 0}});
    }
}

/* An end that is no answer. */
static bool is_abrupt(const struct pyr_trial *trial, const struct facts *facts,
                      struct pyr_outcome *outcome) {
    struct pyr_text next = facts->next_loaded ? (struct pyr_text){"", 0} : facts->next;
    if (trial->child.hostile) {
        pyr_classify_hostile(outcome);
        return true;
    }
    if (is_late(trial)) {
        settle_late(trial, next, outcome);
        return true;
    }
    if (!facts->finished) {
        int ended = trial->child.status;
        enum pyr_status status = WIFSIGNALED(ended) ? PYR_CRASHED : PYR_EXITED;
        /* A constructor may have used the interpreter, which does not run here. */
        status = trial->python ? PYR_NO_PYTHON : next.length > 0 ? PYR_TORCH_FAILS : status;
        settle_ended(outcome, status, trial);
    }
    return !facts->finished;
}

static void classify_load(const struct pyr_trial *trial, const struct facts *facts,
                          struct pyr_outcome *outcome) {
    if (!facts->started) {
        pyr_classify_broken(trial, outcome);
    } else if (!is_abrupt(trial, facts, outcome)) {
        struct pyr_loader_text first = pyr_loader_read_error(facts->first_error);
        if (pyr_text_is(first.file, trial->name)) {
            refused(trial, &first, outcome); /* the stub cannot help */
        } else if (facts->loaded) {
            loaded(trial, facts, facts->stub, outcome);
        } else if (facts->stub && is_for_driver(facts->last_error)) {
            no_driver(outcome, true);
        } else {
            refused_with(trial, facts->last_error, outcome);
        }
    }
}

/* Did the loader end the program before its main? It does so with status 127, or 1 for a version.
 * Any other end is the doing of a constructor, whatever it printed. */
static bool is_refused(const struct pyr_trial *trial, const struct facts *facts,
                       struct pyr_loader_text *said) {
    if (facts->started || is_late(trial) || !WIFEXITED(trial->child.status)) {
        return false;
    }
    *said = pyr_loader_read_stderr(trial->captured);
    int status = WEXITSTATUS(trial->child.status);
    return (status == VERSION_FAILED && said->says == PYR_SAYS_VERSION) ||
           (status == LOADER_FAILED && said->says != PYR_SAYS_NOTHING_KNOWN);
}

/* LD_PRELOAD holds the path or, if that has a space, the file name. */
static struct pyr_text skip_reason(const struct pyr_trial *trial) {
    const char *slash = strrchr(trial->name, '/');
    struct pyr_text reason = {"", 0};
    if (!pyr_loader_skipped(trial->captured, pyr_text_of(trial->name), &reason) && slash) {
        pyr_loader_skipped(trial->captured, pyr_text_of(slash + 1), &reason);
    }
    return reason;
}

/* The target is as it should be, but the program's next library may not be. */
static void classify_next(const struct pyr_trial *trial, const struct facts *facts,
                          struct pyr_outcome *outcome) {
    struct pyr_loader_text said = pyr_loader_read_error(facts->next_error);
    bool driverless = trial->stub || facts->false_driver;
    if (driverless && pyr_loader_is_driver_symbol(said.name)) {
        return;
    }
    refused(trial, &said, outcome);
    outcome->status = PYR_TORCH_FAILS;
}

/* Is a file that was found sound skipped for a limit or a policy? The loader gives no errno. */
static bool is_refusal(const struct pyr_trial *trial, struct pyr_text reason) {
    char message[PYR_WIRE_TEXT_MAX];
    int length = snprintf(message, sizeof message, "x: %.*s", (int)reason.length, reason.at);
    struct pyr_loader_text said = pyr_loader_read_error((struct pyr_text){
        message, length < 0 || (size_t)length >= sizeof message ? 0 : (size_t)length});
    return strchr(trial->name, '/') && pyr_loader_is_refused(&said);
}

static void classify_preload(const struct pyr_trial *trial, const struct facts *facts,
                             struct pyr_outcome *outcome) {
    struct pyr_loader_text said;
    if (is_refused(trial, facts, &said)) {
        if (trial->stub && pyr_loader_is_driver_symbol(said.name)) {
            no_driver(outcome, true); /* with BIND_NOW the loader looks for it at the start */
        } else {
            refused(trial, &said, outcome);
        }
    } else if (is_abrupt(trial, facts, outcome)) {
        return;
    } else if (!facts->present) {
        const struct pyr_text none = {"", 0}, reason = skip_reason(trial);
        settle(outcome, PYR_IGNORED,
               (struct fields){.name = is_refusal(trial, reason) ? reason : none, .text = reason});
    } else if (facts->symbol.length > 0) {
        settle(outcome, PYR_BYPASSED, (struct fields){.file = facts->owner, .text = facts->symbol});
    } else {
        loaded(trial, facts, trial->stub, outcome);
        bool sound = outcome->status == PYR_LOADABLE || outcome->status == PYR_NO_DRIVER;
        if (sound && facts->next.length > 0 && !facts->next_loaded) {
            classify_next(trial, facts, outcome);
        }
    }
}

void pyr_classify(const struct pyr_trial *trial, struct pyr_outcome *outcome) {
    struct facts facts = facts_of(trial);
    if (trial->mode == PYR_PRELOAD) {
        classify_preload(trial, &facts, outcome);
    } else {
        classify_load(trial, &facts, outcome);
    }
}

bool pyr_outcome_lacks_driver(const struct pyr_outcome *outcome) {
    bool missing = outcome->status == PYR_MISSING_DEPENDENCY || outcome->status == PYR_TORCH_FAILS;
    return missing && strcmp(outcome->fields, DRIVER_SONAME) == 0;
}
