#include "line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

#define CUT "..."

enum {
    NAME_MIN = 20,   /* characters that a long detail leaves to the name */
    STATUS_MAX = 24, /* characters: with the longest of all other parts NAME_MIN are still left */
    MORE_SIZE = sizeof " and 4294967295 more",
};

static const char *verdict_name(int32_t verdict) {
    switch (verdict) {
    case PYR_OK:
        return "OK";
    case PYR_UNKNOWN:
        return "UNKNOWN";
    default:
        return "FAIL";
    }
}

/* FAIL before UNKNOWN before OK. */
static int rank(const struct pyr_line_check *check) {
    return check->verdict == PYR_OK ? 0 : check->verdict == PYR_UNKNOWN ? 1 : 2;
}

/* The last component of a path, as pathlib sees it: that of `a/b/.` is b, that of `.` itself. */
static struct pyr_text base_name(const char *path) {
    struct pyr_text found = {path[0] == '/' ? "" : ".", path[0] != '/'};
    while (*path != '\0') {
        size_t length = strcspn(path, "/");
        if (length > 1 || (length == 1 && *path != '.')) {
            found = (struct pyr_text){path, length};
        }
        path += length + (path[length] == '/');
    }
    return found;
}

static size_t shorter(size_t one, size_t other) {
    return one < other ? one : other;
}

static char *append_printable(char *to, const char *from, size_t length) {
    for (size_t i = 0; i < length; i++) {
        *to++ = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
    }
    return to;
}

/* Appends a text in at most `width` characters, cut from the middle: libraries are told apart by
 * how their names begin and end. */
static char *append(char *to, struct pyr_text text, size_t width) {
    if (text.length <= width) {
        return append_printable(to, text.at, text.length);
    }
    size_t kept = width - strlen(CUT);
    to = append_printable(to, text.at, kept / 2);
    to = stpcpy(to, CUT);
    return append_printable(to, text.at + text.length - (kept - kept / 2), kept - kept / 2);
}

/* Without printf for the usual line: that costs a probe more than all the rest of this file. */
static void write_one(const struct pyr_line_check *check, uint32_t others,
                      char line[PYR_LINE_WIDTH + 1]) {
    char more[MORE_SIZE] = "";
    if (others > 0) {
        snprintf(more, sizeof more, " and %" PRIu32 " more", others);
    }
    char *at = stpcpy(line, verdict_name(check->verdict));
    at = append(stpcpy(at, " "), pyr_text_of(check->status), STATUS_MAX);
    size_t room =
        PYR_LINE_WIDTH - (size_t)(at - line) - strlen(": ") - strlen(" ()") - strlen(more);
    struct pyr_text name = base_name(check->name), detail = pyr_text_of(check->detail);
    size_t width = shorter(detail.length, room - shorter(name.length, NAME_MIN));
    if (width > 0) {
        at = append(stpcpy(at, ": "), detail, width);
    }
    at = append(stpcpy(at, " ("), name, room - width);
    stpcpy(stpcpy(at, ")"), more);
}

static const struct pyr_line_check *worst_of(const struct pyr_line_check *checks, uint32_t count) {
    const struct pyr_line_check *worst = checks;
    for (uint32_t i = 1; i < count; i++) {
        worst = rank(&checks[i]) > rank(worst) ? &checks[i] : worst;
    }
    return worst;
}

int pyr_line_verdict(const struct pyr_line_check *checks, uint32_t count) {
    return worst_of(checks, count)->verdict;
}

void pyr_line_write(const struct pyr_line_check *checks, uint32_t count,
                    char line[PYR_LINE_WIDTH + 1]) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        bad += rank(&checks[i]) > 0;
    }
    if (bad == 0 && count > 1) {
        snprintf(line, PYR_LINE_WIDTH + 1, "OK %" PRIu32 " checks", count);
    } else {
        write_one(worst_of(checks, count), bad > 1 ? bad - 1 : 0, line);
    }
}
