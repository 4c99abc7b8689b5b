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

/* Appends as much as there is room for. */
static size_t put(char *to, size_t at, size_t size, const char *from, size_t length) {
    length = shorter(length, size - at);
    memcpy(to + at, from, length);
    return at + length;
}

/* Of a C++ name the identifiers that lead to it, as `c10::TensorImpl::sizes`, and the version: its
 * parameters would take their place. Any other text as it is. The grammar is that of <name> in the
 * Itanium C++ ABI, up to what is no identifier. */
static struct pyr_text telling_part(struct pyr_text text, char part[], size_t size) {
    const char *at = text.at, *end = text.at + text.length;
    size_t used = 0;
    if (text.length < 3 || memcmp(at, "_Z", 2) != 0) {
        return text;
    }
    at += 2;
    at += *at == 'N';
    while (at < end && (*at == 'K' || *at == 'V')) {
        at++;
    }
    if (end - at > 2 && memcmp(at, "St", 2) == 0) {
        used = put(part, used, size, "std", 3);
        at += 2;
    }
    while (at < end && *at >= '1' && *at <= '9') {
        size_t length = 0;
        for (; at < end && *at >= '0' && *at <= '9' && length < text.length; at++) {
            length = 10 * length + (size_t)(*at - '0');
        }
        if (length > (size_t)(end - at)) {
            return text;
        }
        used = used > 0 ? put(part, used, size, "::", 2) : used;
        used = put(part, used, size, at, length);
        at += length;
    }
    const char *version = memchr(text.at, '@', text.length);
    if (version && used > 0) {
        used = put(part, used, size, version, (size_t)(end - version));
    }
    return used > 0 ? (struct pyr_text){part, used} : text;
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
    char part[2 * PYR_LINE_WIDTH];
    size_t most = room - shorter(name.length, NAME_MIN);
    if (detail.length > most) {
        detail = telling_part(detail, part, sizeof part);
    }
    size_t width = shorter(detail.length, most);
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
