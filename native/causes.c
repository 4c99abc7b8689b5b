/* A path may hold anything, so that a file is all that comes before the *last* of the loader's own
 * words in a line. Those are not translated in a process that never calls setlocale
 * (elf/dl-load.c, dl-version.c of glibc). */
#include "causes.h"

#include <string.h>

static const struct pyr_text NONE = {"", 0};

bool pyr_text_is(struct pyr_text text, const char *string) {
    return text.length == strlen(string) && memcmp(text.at, string, text.length) == 0;
}

static bool starts_with(struct pyr_text text, const char *prefix) {
    size_t length = strlen(prefix);
    return text.length >= length && memcmp(text.at, prefix, length) == 0;
}

static bool is_space(char c) {
    return c != '\0' && strchr(" \t\n\v\f\r", c) != NULL;
}

static struct pyr_text behind(struct pyr_text text, size_t length) {
    return (struct pyr_text){text.at + length, text.length - length};
}

static struct pyr_text before(struct pyr_text text, const char *end) {
    return (struct pyr_text){text.at, (size_t)(end - text.at)};
}

static struct pyr_text stripped(struct pyr_text text) {
    while (text.length > 0 && is_space(text.at[0])) {
        text = behind(text, 1);
    }
    while (text.length > 0 && is_space(text.at[text.length - 1])) {
        text.length--;
    }
    return text;
}

/* Takes the first line off `text`. */
static bool next_line(struct pyr_text *text, struct pyr_text *line) {
    if (text->length == 0) {
        return false;
    }
    const char *end = memchr(text->at, '\n', text->length);
    *line = end ? before(*text, end) : *text;
    *text = behind(*text, line->length + (end != NULL));
    return true;
}

/* Splits `line` at the last `words` in it that begin within *left and have something before them.
 */
static bool split_last(struct pyr_text line, const char *words, struct pyr_text *left,
                       struct pyr_text *right) {
    for (size_t at = left->length; at > 1; at--) {
        struct pyr_text rest = behind(line, at - 1);
        if (starts_with(rest, words)) {
            *left = before(line, rest.at);
            *right = behind(rest, strlen(words));
            return true;
        }
    }
    return false;
}

/* What comes before the first white space. */
static struct pyr_text first_word(struct pyr_text text) {
    size_t length = 0;
    while (length < text.length && !is_space(text.at[length])) {
        length++;
    }
    return (struct pyr_text){text.at, length};
}

/* FILE: version `VERSION' not found (required by …) */
static bool of_version(struct pyr_text line, struct pyr_cause *cause) {
    struct pyr_text file = line, rest;
    while (split_last(line, ": version `", &file, &rest)) {
        const char *quote = memchr(rest.at, '\'', rest.length);
        struct pyr_text version = quote ? before(rest, quote) : NONE;
        if (version.length > 0 && starts_with(behind(rest, version.length), "' not found")) {
            *cause = (struct pyr_cause){PYR_VERSION_MISMATCH, version, NONE, file};
            return true;
        }
    }
    return false;
}

/* BY: symbol SYMBOL, version VERSION not defined in file FILE with link time reference */
static bool of_link_time(struct pyr_text line, struct pyr_cause *cause) {
    struct pyr_text by = line, rest;
    while (split_last(line, ": symbol ", &by, &rest)) {
        struct pyr_text symbol = first_word(rest);
        if (symbol.length < 2 || symbol.at[symbol.length - 1] != ',') {
            continue;
        }
        rest = behind(rest, symbol.length--);
        if (!starts_with(rest, " version ")) {
            continue;
        }
        rest = behind(rest, strlen(" version "));
        struct pyr_text version = first_word(rest);
        rest = behind(rest, version.length);
        struct pyr_text file, end;
        if (version.length == 0 || !starts_with(rest, " not defined in file ")) {
            continue;
        }
        file = rest = behind(rest, strlen(" not defined in file "));
        if (split_last(rest, " with link time reference", &file, &end)) {
            *cause = (struct pyr_cause){PYR_VERSION_MISMATCH, symbol, version, file};
            return true;
        }
    }
    return false;
}

/* BY: undefined symbol: SYMBOL, version VERSION */
static bool of_undefined(struct pyr_text line, struct pyr_cause *cause) {
    struct pyr_text by = line, rest;
    while (split_last(line, ": undefined symbol: ", &by, &rest)) {
        struct pyr_text symbol = first_word(rest);
        const char *comma = memchr(symbol.at, ',', symbol.length);
        symbol = comma ? before(symbol, comma) : symbol;
        if (symbol.length == 0) {
            continue;
        }
        rest = behind(rest, symbol.length);
        struct pyr_text version = NONE;
        if (starts_with(rest, ", version ")) {
            version = first_word(behind(rest, strlen(", version ")));
        }
        *cause = (struct pyr_cause){PYR_UNDEFINED_SYMBOL, symbol, version, NONE};
        return true;
    }
    return false;
}

/* FILE: cannot open shared object file: REASON */
static bool of_not_found(struct pyr_text line, struct pyr_cause *cause) {
    struct pyr_text file = line, reason;
    while (split_last(line, ": cannot open shared object file: ", &file, &reason)) {
        if (reason.length > 0) {
            bool denied = pyr_text_is(reason, "Permission denied");
            enum pyr_status status = denied ? PYR_PERMISSION : PYR_MISSING_DEPENDENCY;
            *cause = (struct pyr_cause){status, file, NONE, file};
            return true;
        }
    }
    return false;
}

/* FILE: what is wrong with it */
static bool of_broken_file(struct pyr_text line, struct pyr_cause *cause) {
    static const char *const wrong[] = {
        "file too short",           "invalid ELF header",
        "wrong ELF class",          "ELF file ",
        "ELF load command ",        "cannot read file data",
        "object file has no ",      "only ET_DYN ",
        "cannot dynamically load ", "failed to map segment from shared object",
    };
    struct pyr_text file = line, rest;
    while (split_last(line, ": ", &file, &rest)) {
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            size_t length = strlen(wrong[i]);
            bool open_ended = wrong[i][length - 1] == ' '; /* it goes on with something */
            if (starts_with(rest, wrong[i]) && rest.length >= length + open_ended) {
                *cause = (struct pyr_cause){PYR_NOT_LOADABLE, NONE, NONE, file};
                return true;
            }
        }
    }
    return false;
}

/* PROGRAM: error while loading shared libraries: REST, and nothing but that once it is found */
static bool is_fatal(struct pyr_text words, struct pyr_text *rest) {
    struct pyr_text line;
    while (next_line(&words, &line)) {
        for (size_t at = 1; at < line.length; at++) {
            static const char *const fatal[] = {
                ": error while loading shared libraries: ",
                ": symbol lookup error: ",
            };
            for (size_t i = 0; i < 2; i++) {
                struct pyr_text from = behind(line, at);
                if (starts_with(from, fatal[i]) && from.length > strlen(fatal[i])) {
                    *rest = behind(from, strlen(fatal[i]));
                    return true;
                }
            }
        }
    }
    return false;
}

struct pyr_cause pyr_cause_of_words(struct pyr_text words) {
    static bool (*const kinds[])(struct pyr_text, struct pyr_cause *) = {
        of_version, of_link_time, of_undefined, of_not_found, of_broken_file,
    };
    struct pyr_text text;
    bool fatal = is_fatal(words, &text);
    if (!fatal) {
        text = stripped(words);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct pyr_text rest = text, line;
        struct pyr_cause cause;
        while (next_line(&rest, &line)) {
            if (!kinds[i](line, &cause)) {
                continue;
            }
            if (kinds[i] == of_version && !fatal) { /* PROGRAM: FILE: version … */
                struct pyr_text program = cause.file;
                split_last(cause.file, ": ", &program, &cause.file);
            }
            return cause;
        }
    }
    return (struct pyr_cause){PYR_NOT_LOADABLE, NONE, NONE, NONE};
}

/* The driver API; the runtime's are cuda[A-Z]. */
bool pyr_cause_is_driver_symbol(struct pyr_text name) {
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
