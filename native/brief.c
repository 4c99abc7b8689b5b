#include "brief.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CUT "..."

enum {
    NAME_MIN = 20, /* of a name that has to give way to the detail */
    MORE_SIZE = sizeof " and 4294967295 more",
};

static const char *const NAMES[PYR_STATUSES] = {
    [PYR_LOADABLE] = "loadable",
    [PYR_NO_DRIVER] = "no_driver",
    [PYR_MISSING_DEPENDENCY] = "missing_dependency",
    [PYR_UNDEFINED_SYMBOL] = "undefined_symbol",
    [PYR_VERSION_MISMATCH] = "version_mismatch",
    [PYR_NOT_FOUND] = "not_found",
    [PYR_NOT_ELF] = "not_elf",
    [PYR_TRUNCATED] = "truncated",
    [PYR_WRONG_ARCH] = "wrong_arch",
    [PYR_NOEXEC] = "noexec",
    [PYR_PERMISSION] = "permission",
    [PYR_NOT_LOADABLE] = "not_loadable",
    [PYR_IGNORED] = "ignored",
    [PYR_BYPASSED] = "bypassed",
    [PYR_CRASHED] = "crashed",
    [PYR_EXITED] = "exited",
    [PYR_TIMED_OUT] = "timed_out",
    [PYR_BROKEN_ENVIRONMENT] = "broken_environment",
};

enum pyr_verdict pyr_status_verdict(enum pyr_status status) {
    switch (status) {
    case PYR_LOADABLE:
        return PYR_OK;
    case PYR_NO_DRIVER:
        return PYR_UNKNOWN;
    default:
        return PYR_FAIL;
    }
}

static const char *verdict_name(enum pyr_verdict verdict) {
    switch (verdict) {
    case PYR_OK:
        return "OK";
    case PYR_UNKNOWN:
        return "UNKNOWN";
    default:
        return "FAIL";
    }
}

void pyr_detail_add(struct pyr_outcome *outcome, struct pyr_text text) {
    const size_t half = PYR_DETAIL_SIZE / 2;
    size_t used = outcome->detail_length;
    size_t first = PYR_DETAIL_SIZE - used < text.length ? PYR_DETAIL_SIZE - used : text.length;
    memcpy(outcome->detail + used, text.at, first);
    outcome->detail_length = (uint32_t)(used + first);
    text.at += first;
    text.length -= first;
    /* What comes on top pushes out of the second half what was there. */
    size_t more = text.length < half ? text.length : half;
    memmove(outcome->detail + half, outcome->detail + half + more, half - more);
    memcpy(outcome->detail + PYR_DETAIL_SIZE - more, text.at + text.length - more, more);
}

/* FAIL before UNKNOWN before OK. */
static int rank(const struct pyr_outcome *outcome) {
    enum pyr_verdict verdict = pyr_status_verdict(outcome->status);
    return verdict == PYR_FAIL ? 2 : verdict == PYR_UNKNOWN;
}

void pyr_tally_add(struct pyr_tally *tally, const struct pyr_outcome *outcome) {
    if (tally->checks == 0 || rank(outcome) > rank(&tally->worst)) {
        tally->worst = *outcome;
    }
    tally->checks++;
    tally->bad += rank(outcome) > 0;
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

/* Nothing but printable ASCII leaves this file. */
static char *append_plain(char *to, const char *from, size_t length) {
    for (size_t i = 0; i < length; i++) {
        *to++ = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
    }
    return to;
}

/* Appends a text in at most `width` characters, cut from the middle: libraries are told apart by
 * how their names begin and end. */
static char *append(char *to, struct pyr_text text, size_t width) {
    if (text.length <= width) {
        return append_plain(to, text.at, text.length);
    }
    size_t kept = width - strlen(CUT);
    to = append_plain(to, text.at, kept / 2);
    to = stpcpy(to, CUT);
    return append_plain(to, text.at + text.length - (kept - kept / 2), kept - kept / 2);
}

/* " and 3 more" */
static void more_write(char text[MORE_SIZE], uint32_t others) {
    text[0] = '\0';
    if (others > 0) {
        snprintf(text, MORE_SIZE, " and %" PRIu32 " more", others);
    }
}

/* The usual line is made without printf, which costs a probe more than all the rest of this. */
void pyr_brief_line(const struct pyr_tally *tally, char line[PYR_BRIEF_WIDTH + 1]) {
    const struct pyr_outcome *worst = &tally->worst;
    if (tally->bad == 0 && tally->checks > 1) {
        snprintf(line, PYR_BRIEF_WIDTH + 1, "OK %" PRIu32 " checks", tally->checks);
        return;
    }
    char more[MORE_SIZE];
    more_write(more, tally->bad > 1 ? tally->bad - 1 : 0);
    char *at = stpcpy(line, verdict_name(pyr_status_verdict(worst->status)));
    at = stpcpy(stpcpy(at, " "), NAMES[worst->status]);

    size_t room =
        PYR_BRIEF_WIDTH - (size_t)(at - line) - strlen(": ") - strlen(" ()") - strlen(more);
    struct pyr_text name = base_name(worst->name);
    size_t width = shorter(worst->detail_length, room - shorter(name.length, NAME_MIN));
    if (width > 0) {
        at = stpcpy(at, ": ");
        at = append(at, (struct pyr_text){worst->detail, worst->detail_length}, width);
    }
    at = stpcpy(at, " (");
    at = append(at, name, room - width);
    stpcpy(stpcpy(at, ")"), more);
}
