#include "judge.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "causes.h"
#include "elf.h"

#define DRIVER_SONAME "libcuda.so.1"

enum {
    LOADER_FAILED = 127,
    VERSION_FAILED = 1, /* the loader's exit status over a symbol version */
    STUB_LIBRARY = 34,  /* cuda.h: the toolkit's link-time libcuda answers every call so */
    SHARED_OBJECT = 3,  /* e_type */
    NAME_LENGTH = 255,  /* bytes in one component of a path */
    PATH_SIZE = PYR_WIRE_TEXT_MAX + 1,
};

/* What the frames say. */
struct facts {
    bool started;
    bool finished;
    bool present;
    bool attempted;
    bool stub;         /* the last attempt had the stub driver */
    bool false_driver; /* a libcuda is mapped that is none */
    bool bypassed;
    bool loaded;                 /* the last attempt */
    struct pyr_text first_error; /* empty where the first attempt succeeded */
    struct pyr_text last_error;
    struct pyr_text undefined;     /* the first symbol that nothing defines */
    struct pyr_text own_undefined; /* the first that is not the driver's */
};

static struct pyr_text text_of(const char *string) {
    return (struct pyr_text){string, strlen(string)};
}

static void settle(struct pyr_outcome *outcome, enum pyr_status status, struct pyr_text detail) {
    outcome->status = status;
    outcome->detail_length = 0;
    pyr_detail_add(outcome, detail);
}

void pyr_judge_late(double timeout, struct pyr_outcome *outcome) {
    char text[32];
    snprintf(text, sizeof text, "%g s", timeout);
    settle(outcome, PYR_TIMED_OUT, text_of(text));
}

/* --- the file itself */

/* A name to search. The loader would take "" for the program. */
static bool is_for_the_loader(const char *name) {
    size_t length = strlen(name);
    return length > 0 && length <= NAME_LENGTH && !strchr(name, '/');
}

static enum pyr_status of_errno(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
        return PYR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return PYR_PERMISSION;
    default:
        return PYR_NOT_LOADABLE;
    }
}

/* Another C library than glibc. */
static bool is_foreign(const struct pyr_elf *elf) {
    const char *end = elf->text + elf->text_size;
    for (const char *at = elf->text; at < end; at += strlen(at) + 1) {
        if (*at == PYR_ELF_NEEDED && (strcmp(at + 1, "libc.so") == 0 ||
                                      strncmp(at + 1, "libc.musl-", strlen("libc.musl-")) == 0)) {
            return true;
        }
    }
    return false;
}

/* Of a sound file: what keeps it from being a library for this machine. LOADABLE: nothing. */
static enum pyr_status of_sound(const char *path, const struct pyr_elf *elf) {
    uint8_t elf_class, data;
    uint16_t machine;
    pyr_elf_host(&elf_class, &data, &machine);
    if (elf->elf_class != elf_class || elf->data != data || elf->machine != machine) {
        return PYR_WRONG_ARCH;
    }
    if (elf->type != SHARED_OBJECT || is_foreign(elf)) {
        return PYR_NOT_LOADABLE;
    }
    struct statvfs mount;
    return statvfs(path, &mount) == 0 && mount.f_flag & ST_NOEXEC ? PYR_NOEXEC : PYR_LOADABLE;
}

static enum pyr_status diagnose(const char *path, int *error) {
    static struct pyr_elf elf;
    *error = 0;
    switch (pyr_elf_read(path, &elf)) {
    case PYR_ELF_CANNOT_OPEN:
        *error = elf.sys_errno;
        return of_errno(elf.sys_errno);
    case PYR_ELF_CANNOT_READ:
        *error = elf.sys_errno;
        return PYR_NOT_LOADABLE;
    case PYR_ELF_EMPTY:
    case PYR_ELF_TRUNCATED:
        return PYR_TRUNCATED;
    case PYR_ELF_NOT_REGULAR:
    case PYR_ELF_NOT_ELF:
    case PYR_ELF_MALFORMED:
        return PYR_NOT_ELF;
    default:
        return of_sound(path, &elf);
    }
}

bool pyr_judge_file(const char *name, struct pyr_outcome *outcome, int *error) {
    *error = 0;
    if (is_for_the_loader(name)) {
        return false;
    }
    enum pyr_status status = diagnose(name, error);
    if (*error != EMFILE && *error != ENFILE && *error != ENOMEM) {
        *error = 0;
    }
    if (*error || status == PYR_LOADABLE) {
        return false;
    }
    settle(outcome, status, text_of(""));
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

/* NAME, NUL, object that the process gets it from, NUL, object that the target alone would. */
static bool is_bypassed(struct pyr_text text, const char *target) {
    const char *end = text.at + text.length;
    const char *actual = memchr(text.at, '\0', text.length);
    const char *own = actual ? memchr(actual + 1, '\0', (size_t)(end - actual - 1)) : NULL;
    char from[PATH_SIZE], wanted[PATH_SIZE];
    return own && path_copy(from, (struct pyr_text){actual + 1, (size_t)(own - actual - 1)}) &&
           path_copy(wanted, (struct pyr_text){own + 1, (size_t)(end - own - 1)}) &&
           strcmp(from, wanted) != 0 && same_file(wanted, target);
}

static void note_load(struct facts *facts, const struct pyr_wire_frame *head,
                      struct pyr_text text) {
    if (head->a & PYR_WIRE_LOAD_PRESENT) {
        facts->present = head->b == 1;
        return;
    }
    facts->loaded = head->b == 1;
    facts->last_error = facts->loaded ? text_of("") : text;
    facts->stub = head->a & PYR_WIRE_LOAD_STUB;
    if (!facts->attempted) {
        facts->first_error = facts->last_error;
    }
    facts->attempted = true;
}

static void note_undefined(struct facts *facts, struct pyr_text symbol) {
    if (facts->undefined.length == 0) {
        facts->undefined = symbol;
    }
    if (facts->own_undefined.length == 0 && !pyr_cause_is_driver_symbol(symbol)) {
        facts->own_undefined = symbol;
    }
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
        facts->bypassed = facts->bypassed || is_bypassed(text, trial->name);
        break;
    case PYR_WIRE_UNDEFINED:
        note_undefined(facts, text);
        break;
    default:
        break;
    }
}

static struct facts facts_of(const struct pyr_trial *trial) {
    struct facts facts = {.first_error = text_of("")};
    facts.last_error = facts.undefined = facts.own_undefined = facts.first_error;
    struct pyr_wire_frame head;
    const char *text;
    for (uint32_t at = 0; pyr_board_next(trial->board, &at, &head, &text);) {
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

/* `SIGSEGV` or `exit status 3` */
static void settle_ended(struct pyr_outcome *outcome, enum pyr_status status, int wait_status) {
    char text[32];
    const char *name = NULL;
    if (!WIFSIGNALED(wait_status)) {
        snprintf(text, sizeof text, "exit status %d", WEXITSTATUS(wait_status));
    } else if (!(name = signal_name(WTERMSIG(wait_status)))) {
        snprintf(text, sizeof text, "signal %d", WTERMSIG(wait_status));
    }
    settle(outcome, status, text_of(name ? name : text));
}

void pyr_judge_broken(const struct pyr_trial *trial, struct pyr_outcome *outcome) {
    if (!trial->in_time) {
        pyr_judge_late(trial->timeout, outcome);
        /* As a preload the target has been left out of this one: it is not to blame. */
        outcome->status = trial->mode == PYR_PRELOAD ? PYR_BROKEN_ENVIRONMENT : PYR_TIMED_OUT;
    } else {
        settle_ended(outcome, PYR_BROKEN_ENVIRONMENT, trial->status);
    }
}

static void refused(const struct pyr_trial *trial, const struct pyr_cause *cause,
                    struct pyr_outcome *outcome) {
    enum pyr_status status = cause->status;
    if (status == PYR_MISSING_DEPENDENCY && pyr_text_is(cause->file, trial->name)) {
        settle(outcome, PYR_NOT_FOUND, text_of(""));
        return;
    }
    if (status == PYR_NOT_LOADABLE || status == PYR_PERMISSION) {
        /* Without a slash it is a name that the loader searched, not a file in this directory. */
        char path[PATH_SIZE];
        int error;
        enum pyr_status seen = PYR_LOADABLE;
        if (path_copy(path, cause->file) && strchr(path, '/')) {
            seen = diagnose(path, &error);
        }
        settle(outcome, seen == PYR_LOADABLE ? status : seen, text_of(""));
        return;
    }
    settle(outcome, status, cause->name);
    if (cause->version.length > 0) {
        pyr_detail_add(outcome, text_of("@"));
        pyr_detail_add(outcome, cause->version);
    }
}

/* An end that is no answer. */
static bool is_abrupt(const struct pyr_trial *trial, const struct facts *facts,
                      struct pyr_outcome *outcome) {
    if (!trial->in_time) {
        pyr_judge_late(trial->timeout, outcome);
        return true;
    }
    if (!facts->finished) {
        settle_ended(outcome, WIFSIGNALED(trial->status) ? PYR_CRASHED : PYR_EXITED, trial->status);
    }
    return !facts->finished;
}

static void loaded(const struct facts *facts, bool stub, struct pyr_outcome *outcome) {
    bool no_driver = stub || facts->false_driver;
    struct pyr_text undefined = no_driver ? facts->own_undefined : facts->undefined;
    if (undefined.length > 0) {
        settle(outcome, PYR_UNDEFINED_SYMBOL, undefined);
    } else if (no_driver) {
        settle(outcome, PYR_NO_DRIVER, text_of(DRIVER_SONAME));
    } else {
        settle(outcome, PYR_LOADABLE, text_of(""));
    }
}

static void judge_load(const struct pyr_trial *trial, const struct facts *facts,
                       struct pyr_outcome *outcome) {
    if (!facts->started) {
        pyr_judge_broken(trial, outcome);
        return;
    }
    if (is_abrupt(trial, facts, outcome)) {
        return;
    }
    struct pyr_cause first = pyr_cause_of_words(facts->first_error);
    if (facts->first_error.length > 0 && pyr_text_is(first.file, trial->name)) {
        refused(trial, &first, outcome); /* a name that nothing answers to */
        return;
    }
    if (facts->loaded) {
        loaded(facts, facts->stub, outcome);
        return;
    }
    struct pyr_cause last = pyr_cause_of_words(facts->last_error);
    if (facts->stub && pyr_cause_is_driver_symbol(last.name)) {
        settle(outcome, PYR_NO_DRIVER, text_of(DRIVER_SONAME));
    } else {
        refused(trial, &last, outcome);
    }
}

/* The loader's reason for ending a program before its main: it does so with 127, or with 1 over a
 * version. Any other end is the doing of a constructor, whatever it printed before. */
static bool is_refused(const struct pyr_trial *trial, const struct facts *facts,
                       struct pyr_cause *cause) {
    if (facts->started || !trial->in_time || !WIFEXITED(trial->status)) {
        return false;
    }
    *cause = pyr_cause_of_words(trial->words);
    if (WEXITSTATUS(trial->status) == VERSION_FAILED && cause->status == PYR_VERSION_MISMATCH) {
        return true;
    }
    bool known = cause->status != PYR_NOT_LOADABLE || cause->file.length > 0;
    return WEXITSTATUS(trial->status) == LOADER_FAILED && known;
}

static void judge_preload(const struct pyr_trial *trial, const struct facts *facts,
                          struct pyr_outcome *outcome) {
    struct pyr_cause cause;
    if (is_refused(trial, facts, &cause)) {
        refused(trial, &cause, outcome);
    } else if (!is_abrupt(trial, facts, outcome)) {
        if (!facts->present) {
            settle(outcome, PYR_IGNORED, text_of(""));
        } else if (facts->bypassed) {
            settle(outcome, PYR_BYPASSED, text_of(""));
        } else {
            loaded(facts, trial->stub, outcome);
        }
    }
}

void pyr_judge(const struct pyr_trial *trial, struct pyr_outcome *outcome) {
    struct facts facts = facts_of(trial);
    if (trial->mode == PYR_PRELOAD) {
        judge_preload(trial, &facts, outcome);
    } else {
        judge_load(trial, &facts, outcome);
    }
}

bool pyr_outcome_lacks_driver(const struct pyr_outcome *outcome) {
    struct pyr_text detail = {outcome->detail, outcome->detail_length};
    return outcome->status == PYR_MISSING_DEPENDENCY && pyr_text_is(detail, DRIVER_SONAME);
}
