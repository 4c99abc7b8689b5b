/* Text that is a part of another text. */
#ifndef PYR_TEXT_H
#define PYR_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Bytes that need no terminator. */
struct pyr_text {
    const char *at;
    size_t length;
};

static inline struct pyr_text pyr_text_of(const char *string) {
    return (struct pyr_text){string, strlen(string)};
}

/* Are these the bytes of `string`? */
static inline bool pyr_text_is(struct pyr_text text, const char *string) {
    return text.length == strlen(string) && memcmp(text.at, string, text.length) == 0;
}

#endif
