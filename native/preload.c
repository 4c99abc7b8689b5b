#include "preload.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PRELOAD "LD_PRELOAD"
#define LIBRARY_PATH "LD_LIBRARY_PATH"
#define PRELOAD_SEPARATORS " :"
#define LIBRARY_PATH_SEPARATORS ":;"

/* The value in `entry` if that is of the variable `name`. */
static const char *value_in(const char *entry, const char *name) {
    size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=' ? entry + length + 1 : NULL;
}

static const char *value_of(char **environment, const char *name) {
    for (; *environment; environment++) {
        const char *value = value_in(*environment, name);
        if (value) {
            return value;
        }
    }
    return NULL;
}

static const char *or_empty(const char *value) {
    return value ? value : "";
}

/* `entry`, which is NAME=VALUE, in place of all that is there of `name`; NULL: nothing there. */
static char **with(char **environment, const char *name, char *entry) {
    size_t count = 0;
    while (environment[count]) {
        count++;
    }
    char **changed = malloc((count + 2) * sizeof *changed);
    char **at = changed;
    for (; changed && *environment; environment++) {
        if (!value_in(*environment, name)) {
            *at++ = *environment;
        }
    }
    if (changed) {
        *at = entry;
        at[entry != NULL] = NULL;
    }
    return changed;
}

char **pyr_environment_with(char **environment, char *entry) {
    char *name = strndup(entry, strcspn(entry, "="));
    char **changed = name ? with(environment, name, entry) : NULL;
    free(name);
    return changed;
}

static bool holds(const char *value, const char *separators, const char *element, size_t length) {
    for (;;) {
        size_t next = strcspn(value, separators);
        if (next == length && memcmp(value, element, length) == 0) {
            return true;
        }
        if (value[next] == '\0') {
            return false;
        }
        value += next + 1;
    }
}

/* NAME=FIRST and then the elements of `value`, each once and none that is in `without`. Empty ones
 * mean the current directory in LD_LIBRARY_PATH, and nothing in LD_PRELOAD. */
static char *joined(const char *name, const char *first, const char *value,
                    const char *const without[], const char *separators) {
    char *entry = malloc(strlen(name) + strlen(first) + strlen(value) + sizeof "=:");
    if (!entry) {
        return NULL;
    }
    char *list = stpcpy(stpcpy(entry, name), "=");
    char *end = stpcpy(list, first);
    bool keep_empty = separators[0] == ':';
    for (bool more = *value != '\0'; more;) {
        size_t length = strcspn(value, separators);
        bool skip = length == 0 && !keep_empty;
        for (size_t i = 0; without[i]; i++) {
            skip = skip || (strlen(without[i]) == length && !memcmp(without[i], value, length));
        }
        if (!skip && !(end > list && holds(list, ":", value, length))) {
            if (end > list) {
                *end++ = ':';
            }
            memcpy(end, value, length);
            end += length;
            *end = '\0';
        }
        more = value[length] != '\0';
        value += length + more;
    }
    return entry;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The loader expands $ORIGIN and ${ORIGIN}, but takes $ORIGINAL as it stands. */
static bool is_expanded(const char *dollar) {
    static const char *const tokens[] = {"ORIGIN", "PLATFORM", "LIB"};
    bool braced = dollar[1] == '{';
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const char *name = dollar + 1 + braced;
        size_t length = strlen(tokens[i]);
        if (strncmp(name, tokens[i], length) == 0 &&
            (braced ? name[length] == '}' : !is_word(name[length]))) {
            return true;
        }
    }
    return false;
}

/* Does the variable take this element as it stands? */
static bool is_literal(const char *element, const char *separators) {
    for (const char *at = element; *at; at++) {
        if (strchr(separators, *at) || (*at == '$' && is_expanded(at))) {
            return false;
        }
    }
    return true;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A file in a directory with a space is preloaded by its bare name, with its directory in front of
 * LD_LIBRARY_PATH. */
static char **with_home(char **environment, const char *hook, const char **variable) {
    size_t length = (size_t)(base_name(hook) - hook);
    while (length > 1 && hook[length - 1] == '/') {
        length--;
    }
    char *home = strndup(hook, length);
    if (!home) {
        return NULL;
    }
    if (!is_literal(home, LIBRARY_PATH_SEPARATORS)) {
        *variable = LIBRARY_PATH;
        return NULL;
    }
    const char *value = or_empty(value_of(environment, LIBRARY_PATH));
    if (*value && strcspn(value, LIBRARY_PATH_SEPARATORS) == length &&
        memcmp(value, home, length) == 0) {
        return environment;
    }
    const char *none[] = {NULL};
    char *entry = joined(LIBRARY_PATH, home, value, none, LIBRARY_PATH_SEPARATORS);
    return entry ? with(environment, LIBRARY_PATH, entry) : NULL;
}

static char **with_preload(char **environment, const char *first, const char *const without[]) {
    const char *value = or_empty(value_of(environment, PRELOAD));
    char *entry = joined(PRELOAD, first, value, without, PRELOAD_SEPARATORS);
    return entry ? with(environment, PRELOAD, entry) : NULL;
}

char **pyr_preload_first(char **environment, const char *hook, const char **variable) {
    *variable = NULL;
    if (holds(or_empty(value_of(environment, PRELOAD)), PRELOAD_SEPARATORS, hook, strlen(hook))) {
        return environment;
    }
    bool spaced = strchr(hook, '/') && strchr(hook, ' ');
    const char *element = spaced ? base_name(hook) : hook;
    if (!is_literal(element, PRELOAD_SEPARATORS)) {
        *variable = PRELOAD;
        return NULL;
    }
    if (spaced) {
        environment = with_home(environment, hook, variable);
    }
    const char *none[] = {NULL};
    return environment ? with_preload(environment, element, none) : NULL;
}

char **pyr_preload_last(char **environment, const char *item) {
    const char *value = or_empty(value_of(environment, PRELOAD));
    char *entry = malloc(strlen(PRELOAD) + strlen(value) + strlen(item) + sizeof "=:");
    if (!entry) {
        return NULL;
    }
    stpcpy(stpcpy(stpcpy(stpcpy(stpcpy(entry, PRELOAD), "="), value), ":"), item);
    return with(environment, PRELOAD, entry);
}

char **pyr_preload_without(char **environment, const char *hook) {
    const char *own[] = {hook, base_name(hook), NULL};
    return with_preload(environment, "", own);
}

char **pyr_preload_none(char **environment) {
    return value_of(environment, PRELOAD) ? with(environment, PRELOAD, NULL) : environment;
}
