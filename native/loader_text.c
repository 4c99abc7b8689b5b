/* The loader composes OBJECT: WORDS[: TEXT OF ERRNO] (_dl_signal_error in glibc's
 * elf/dl-error-skeleton.c, later elf/dl-catch.c), and does not translate it in a process that
 * never calls setlocale.
 *
 * OBJECT is a path and may contain anything, even such a message. So each message is read from its
 * end: OBJECT is what comes before the last ": " after which there are words of the loader up to
 * the end. */
#include "loader_text.h"

#define NONE {.at = "", .length = 0}

static const struct pyr_loader_text NOTHING = {
    PYR_SAYS_NOTHING_KNOWN, NONE, NONE, NONE, NONE, NONE, NONE,
};

static bool starts_with(struct pyr_text text, const char *prefix) {
    size_t length = strlen(prefix);
    return text.length >= length && memcmp(text.at, prefix, length) == 0;
}

static bool is_space(char c) {
    return c != '\0' && strchr(" \t\n\v\f\r", c) != NULL;
}

static struct pyr_text after(struct pyr_text text, size_t length) {
    return (struct pyr_text){text.at + length, text.length - length};
}

static struct pyr_text before(struct pyr_text text, const char *end) {
    return (struct pyr_text){text.at, (size_t)(end - text.at)};
}

/* Removes `prefix` from the start of `text`. */
static bool take(struct pyr_text *text, const char *prefix) {
    if (!starts_with(*text, prefix)) {
        return false;
    }
    *text = after(*text, strlen(prefix));
    return true;
}

/* Removes `suffix` from the end of `text`. */
static bool take_end(struct pyr_text *text, const char *suffix) {
    size_t length = strlen(suffix);
    if (text->length < length || !starts_with(after(*text, text->length - length), suffix)) {
        return false;
    }
    text->length -= length;
    return true;
}

/* Splits `text` at the first `words`. */
static bool split_first(struct pyr_text text, const char *words, struct pyr_text *left,
                        struct pyr_text *right) {
    const char *found = memmem(text.at, text.length, words, strlen(words));
    if (found == NULL) {
        return false;
    }
    *left = before(text, found);
    *right = after(text, left->length + strlen(words));
    return true;
}

/* Splits `text` at the last `words`. */
static bool split_last(struct pyr_text text, const char *words, struct pyr_text *left,
                       struct pyr_text *right) {
    for (size_t at = text.length; at-- > 0;) {
        struct pyr_text rest = after(text, at);
        if (take(&rest, words)) {
            *left = before(text, text.at + at);
            *right = rest;
            return true;
        }
    }
    return false;
}

/* Removes the first line from `text`. */
static bool next_line(struct pyr_text *text, struct pyr_text *line) {
    if (text->length == 0) {
        return false;
    }
    const char *end = memchr(text->at, '\n', text->length);
    *line = end ? before(*text, end) : *text;
    *text = after(*text, line->length + (end != NULL));
    return true;
}

/* Does a message end with this part? No text of errno contains ": ". */
static bool is_last_part(struct pyr_text text) {
    return text.length > 0 && memmem(text.at, text.length, ": ", 2) == NULL;
}

/* Takes the text of errno, if there is one. */
static bool take_reason(struct pyr_text rest, struct pyr_text *reason) {
    if (rest.length == 0) {
        return true;
    }
    *reason = rest;
    return take(reason, ": ") && is_last_part(*reason);
}

static bool is_one_of(struct pyr_text text, const char *const *strings, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (pyr_text_is(text, strings[i])) {
            return true;
        }
    }
    return false;
}

/* cannot open shared object file: REASON */
static bool read_open(struct pyr_text object, struct pyr_text words,
                      struct pyr_loader_text *found) {
    /* ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP. The loader knows few texts by itself when it ends a
     * program (elf/dl-minimal.c). */
    static const char *const missing[] = {
        "No such file or directory",
        "Not a directory",
        "File name too long",
        "Too many levels of symbolic links",
        "Error 20",
        "Error 36",
        "Error 40",
    };
    if (!take(&words, "cannot open shared object file") || !take_reason(words, &found->reason)) {
        return false;
    }
    if (is_one_of(found->reason, missing, sizeof missing / sizeof *missing)) {
        found->says = PYR_SAYS_NOT_FOUND;
    } else if (pyr_text_is(found->reason, "Permission denied")) {
        found->says = PYR_SAYS_DENIED;
    } else {
        found->says = PYR_SAYS_CANNOT_OPEN;
    }
    found->file = found->name = object;
    return true;
}

/* version `VERSION' not found (required by OBJECT) */
static bool read_version(struct pyr_text object, struct pyr_text words,
                         struct pyr_loader_text *found) {
    if (!take(&words, "version `") || !split_first(words, "' not found", &found->name, &words) ||
        found->name.length == 0) {
        return false;
    }
    if (words.length > 0 && (!take(&words, " (required by ") || !take_end(&words, ")"))) {
        return false;
    }
    found->by = words;
    found->says = PYR_SAYS_VERSION;
    found->file = object;
    return true;
}

/* symbol SYMBOL, version VERSION not defined in file FILE with link time reference, without the
 * comma since 2.27 */
static bool read_link_time(struct pyr_text object, struct pyr_text words,
                           struct pyr_loader_text *found) {
    take_end(&words, " (no version symbols)");
    if (!take(&words, "symbol ") || !take_end(&words, " with link time reference") ||
        !split_first(words, " version ", &found->name, &words) ||
        !split_first(words, " not defined in file ", &found->version, &found->file)) {
        return false;
    }
    take_end(&found->name, ",");
    found->says = PYR_SAYS_LINK_TIME;
    found->by = object;
    return found->name.length > 0;
}

/* undefined symbol: SYMBOL, version VERSION */
static bool read_undefined(struct pyr_text object, struct pyr_text words,
                           struct pyr_loader_text *found) {
    if (!take(&words, "undefined symbol: ")) {
        return false;
    }
    found->name = words;
    split_last(words, ", version ", &found->name, &found->version);
    found->says = PYR_SAYS_UNDEFINED;
    found->by = object;
    return found->name.length > 0;
}

/* What else the loader says, in glibc 2.17 to 2.41. Words with a space at the end go on; after the
 * others there may be a text of errno. */
static const struct phrase {
    const char *words;
    enum pyr_complaint says;
} PHRASES[] = {
    /* elf/dl-load.c */
    {"file too short", PYR_SAYS_BAD_FILE},
    {"cannot read file data", PYR_SAYS_BAD_FILE},
    {"invalid ELF header", PYR_SAYS_BAD_FILE},
    {"wrong ELF class: ", PYR_SAYS_BAD_FILE},
    {"nonzero padding in e_ident", PYR_SAYS_BAD_FILE},
    {"internal error", PYR_SAYS_BAD_FILE},
    {"ELF file ", PYR_SAYS_BAD_FILE},
    {"ELF file's ", PYR_SAYS_BAD_FILE},
    {"ELF load command ", PYR_SAYS_BAD_FILE},
    {"only ET_DYN ", PYR_SAYS_BAD_FILE},
    {"object file has no ", PYR_SAYS_BAD_FILE},
    {"cannot dynamically load ", PYR_SAYS_BAD_FILE},
    {"shared object cannot be dlopen()ed", PYR_SAYS_BAD_FILE},
    {"cannot handle TLS data", PYR_SAYS_BAD_FILE},
    {"cannot process note segment", PYR_SAYS_BAD_FILE},
    {"cannot stat shared object", PYR_SAYS_LIMIT},
    {"cannot close file descriptor", PYR_SAYS_LIMIT},
    {"failed to map segment from shared object", PYR_SAYS_LIMIT},
    {"cannot map zero-fill pages", PYR_SAYS_LIMIT},
    {"cannot change memory protections", PYR_SAYS_LIMIT},
    {"cannot enable executable stack as shared object requires", PYR_SAYS_LIMIT},
    {"cannot create shared object descriptor", PYR_SAYS_LIMIT},
    {"cannot create cache for search path", PYR_SAYS_LIMIT},
    {"cannot create search path array", PYR_SAYS_LIMIT},
    {"cannot create RUNPATH/RPATH copy", PYR_SAYS_LIMIT},
    {"cannot allocate name record", PYR_SAYS_LIMIT},
    {"cannot allocate memory for program header", PYR_SAYS_LIMIT},
    {"cannot allocate TLS data structures for initial thread", PYR_SAYS_LIMIT},
    /* elf/dl-hwcaps.c */
    {"cannot create HWCAP priorities", PYR_SAYS_LIMIT},
    {"cannot create capability list", PYR_SAYS_LIMIT},
    /* elf/dl-deps.c */
    {"empty dynamic string token substitution", PYR_SAYS_BAD_FILE},
    {"DST not allowed in SUID/SGID programs", PYR_SAYS_LIMIT},
    {"cannot allocate dependency buffer", PYR_SAYS_LIMIT},
    {"cannot allocate dependency list", PYR_SAYS_LIMIT},
    {"cannot allocate symbol search list", PYR_SAYS_LIMIT},
    /* elf/dl-version.c */
    {"unsupported version ", PYR_SAYS_BAD_FILE},
    {"DT_RELR without GLIBC_ABI_DT_RELR dependency", PYR_SAYS_BAD_FILE},
    {"cannot allocate version reference table", PYR_SAYS_LIMIT},
    /* elf/dl-open.c, dl-close.c, dl-tls.c, dl-exception.c */
    {"cannot load any more object with static TLS", PYR_SAYS_LIMIT},
    {"cannot extend global scope", PYR_SAYS_LIMIT},
    {"cannot create scope list", PYR_SAYS_LIMIT},
    {"cannot allocate address lookup data", PYR_SAYS_LIMIT},
    {"cannot create TLS data structures", PYR_SAYS_LIMIT},
    {"out of memory", PYR_SAYS_LIMIT},
    /* elf/dl-reloc.c */
    {"unexpected reloc type ", PYR_SAYS_BAD_FILE},
    {"unexpected PLT reloc type ", PYR_SAYS_BAD_FILE},
    {"cannot allocate memory in static TLS block", PYR_SAYS_LIMIT},
    {"cannot make segment writable for relocation", PYR_SAYS_LIMIT},
    {"cannot restore segment prot after reloc", PYR_SAYS_LIMIT},
    {"cannot apply additional memory protection after relocation", PYR_SAYS_LIMIT},
    /* sysdeps/ */
    {"CPU ISA level is lower than required", PYR_SAYS_BAD_FILE},
    {"rebuild shared object with ", PYR_SAYS_BAD_FILE},
    {"error due to GNU_PROPERTY_1_NEEDED_INDIRECT_EXTERN_ACCESS", PYR_SAYS_BAD_FILE},
    {"not GCS compatible", PYR_SAYS_BAD_FILE},
    {"can't disable CET", PYR_SAYS_LIMIT},
    {"can't disable IBT", PYR_SAYS_LIMIT},
    {"can't disable SHSTK", PYR_SAYS_LIMIT},
    {"failed to mark legacy code region", PYR_SAYS_LIMIT},
    {"legacy bitmap isn't available", PYR_SAYS_LIMIT},
    {"mprotect legacy bitmap failed", PYR_SAYS_LIMIT},
    {"shadow stack isn't enabled", PYR_SAYS_LIMIT},
    {"failed to turn on BTI protection", PYR_SAYS_LIMIT},
    {"failed to change PLT back to read-only", PYR_SAYS_LIMIT},
};

static bool read_phrase(struct pyr_text object, struct pyr_text words,
                        struct pyr_loader_text *found) {
    for (size_t i = 0; i < sizeof PHRASES / sizeof *PHRASES; i++) {
        const struct phrase *phrase = &PHRASES[i];
        struct pyr_text rest = words;
        if (!take(&rest, phrase->words)) {
            continue;
        }
        bool goes_on = phrase->words[strlen(phrase->words) - 1] == ' ';
        found->reason = words;
        if (goes_on ? !is_last_part(rest) : !take_reason(rest, &found->reason)) {
            continue;
        }
        found->says = phrase->says;
        /* Some messages about memory name the function instead of a file. */
        bool is_function = pyr_text_is(object, "dlopen") || pyr_text_is(object, "dlclose");
        if (phrase->says != PYR_SAYS_LIMIT || !is_function) {
            found->file = object;
        }
        return true;
    }
    return false;
}

/* Reads all of WORDS. What it leaves in *found when it fails does not count. */
typedef bool reader(struct pyr_text object, struct pyr_text words, struct pyr_loader_text *found);

static bool read_words(struct pyr_text object, struct pyr_text words,
                       struct pyr_loader_text *found) {
    static reader *const readers[] = {
        read_open, read_version, read_link_time, read_undefined, read_phrase,
    };
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        *found = NOTHING;
        /* Only messages about a limit come without an object. */
        if (readers[i](object, words, found) &&
            (object.length > 0 || found->says == PYR_SAYS_LIMIT)) {
            return true;
        }
    }
    *found = NOTHING;
    return false;
}

static bool read_message(struct pyr_text message, struct pyr_loader_text *found) {
    while (message.length > 0 && is_space(message.at[message.length - 1])) {
        message.length--;
    }
    struct pyr_text object = message, words;
    bool more;
    do {
        more = split_last(object, ": ", &object, &words);
        words = more ? after(message, object.length + strlen(": ")) : message;
        if (read_words(more ? object : after(message, message.length), words, found)) {
            found->text = message;
            return true;
        }
    } while (more);
    return false;
}

struct pyr_loader_text pyr_loader_read_error(struct pyr_text error) {
    struct pyr_loader_text found = NOTHING;
    read_message(error, &found);
    return found;
}

/* PROGRAM: OCCASION: MESSAGE */
static bool find_fatal(struct pyr_text captured, struct pyr_text *message) {
    static const char *const occasions[] = {
        ": error while loading shared libraries: ",
        ": symbol lookup error: ",
        ": relocation error: ",
    };
    struct pyr_text line;
    while (next_line(&captured, &line)) {
        for (size_t at = 1; at < line.length; at++) {
            for (size_t i = 0; i < sizeof occasions / sizeof *occasions; i++) {
                *message = after(line, at);
                if (take(message, occasions[i]) && message->length > 0) {
                    return true;
                }
            }
        }
    }
    return false;
}

struct pyr_loader_text pyr_loader_read_stderr(struct pyr_text captured) {
    struct pyr_loader_text first = NOTHING, found;
    struct pyr_text line;
    if (find_fatal(captured, &line)) {
        return pyr_loader_read_error(line);
    }
    while (next_line(&captured, &line)) {
        if (!read_message(line, &found)) {
            continue;
        }
        if (found.says == PYR_SAYS_VERSION) { /* PROGRAM: FILE: version ... */
            struct pyr_text program;
            split_last(found.file, ": ", &program, &found.file);
            found.text = after(line, (size_t)(found.file.at - line.at));
            return found;
        }
        if (first.says == PYR_SAYS_NOTHING_KNOWN) {
            first = found;
        }
    }
    return first;
}

bool pyr_loader_skipped(struct pyr_text captured, struct pyr_text object, struct pyr_text *reason) {
    struct pyr_text line;
    for (; captured.length > 0; next_line(&captured, &line)) {
        struct pyr_text rest = captured, end;
        if (!take(&rest, "ERROR: ld.so: object '") || rest.length < object.length ||
            memcmp(rest.at, object.at, object.length) != 0) {
            continue;
        }
        rest = after(rest, object.length);
        if (!take(&rest, "' from LD_PRELOAD cannot be preloaded")) {
            continue;
        }
        if (take(&rest, " (") && split_first(rest, "): ignored.", reason, &end)) {
            return true;
        }
        if (starts_with(rest, ": ignored.")) {
            *reason = before(rest, rest.at);
            return true;
        }
    }
    return false;
}

bool pyr_loader_is_refused(const struct pyr_loader_text *said) {
    static const char read_failed[] = ": cannot read file data";
    return said->says == PYR_SAYS_LIMIT || said->says == PYR_SAYS_CANNOT_OPEN ||
           (said->says == PYR_SAYS_BAD_FILE &&
            memmem(said->text.at, said->text.length, read_failed, strlen(read_failed)));
}

bool pyr_loader_finds_no(const struct pyr_loader_text *said, const char *library) {
    return pyr_text_is(said->file, library) &&
           (said->says == PYR_SAYS_NOT_FOUND || said->says == PYR_SAYS_BAD_FILE);
}

/* The functions of the driver API; those of the runtime are cuda[A-Z]. */
bool pyr_loader_is_driver_symbol(struct pyr_text name) {
    if (!starts_with(name, "cu") || name.length < 3 || name.at[2] < 'A' || name.at[2] > 'Z') {
        return false;
    }
    const char *at = memchr(name.at, '@', name.length);
    name = at ? before(name, at) : name;
    for (size_t i = 3; i < name.length; i++) {
        char c = name.at[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!word && c != '_') {
            return false;
        }
    }
    return true;
}

bool pyr_loader_is_python_symbol(struct pyr_text name) {
    take(&name, "_");
    return take(&name, "Py") && name.length > 0 &&
           (name.at[0] == '_' || (name.at[0] >= 'A' && name.at[0] <= 'Z'));
}
