/* Fuzz pyr_elf_read and pyr_elf_symbols: any bytes give an answer that keeps the promises of elf.h.
 *
 *   libFuzzer:  clang -DPYR_LIBFUZZER -fsanitize=fuzzer,address,undefined ...
 *   elsewhere:  gcc -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=address,undefined
 *                   -fno-sanitize-recover -iquote native native/elf.c tests/native/fuzz_elf.c
 *               ./a.out SECONDS SEED...     mutates the seed files, the same way in each run
 */
#define _FILE_OFFSET_BITS 64

#include "elf.h"

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

static int lowest_free_fd(void) {
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    CHECK(fd >= 0);
    close(fd);
    return fd;
}

static void check_text(const struct pyr_elf *elf) {
    CHECK(elf->text_size <= sizeof elf->text);
    char previous = 0;
    for (uint32_t at = 0; at < elf->text_size;) {
        char kind = elf->text[at++];
        CHECK(kind != '\0' && strchr("NSRUIFVDdu", kind) != NULL);
        CHECK(kind != PYR_ELF_VERNEED || previous == PYR_ELF_VERNEED_FILE ||
              previous == PYR_ELF_VERNEED);
        const char *end = memchr(elf->text + at, '\0', elf->text_size - at);
        CHECK(end != NULL);
        at = (uint32_t)(end - elf->text) + 1;
        previous = kind;
    }
}

static void check(const struct pyr_elf *elf, int returned, size_t size) {
    CHECK(returned == elf->status);
    CHECK(elf->status >= PYR_ELF_OK && elf->status <= PYR_ELF_TOO_MUCH);
    CHECK(elf->status != PYR_ELF_CANNOT_OPEN && elf->status != PYR_ELF_CANNOT_READ);
    CHECK(elf->status != PYR_ELF_NOT_REGULAR);
    CHECK((elf->status == PYR_ELF_EMPTY) == (size == 0));
    CHECK(elf->sys_errno == 0);
    CHECK(elf->size == size);
    CHECK(elf->inode != 0);
    CHECK(elf->status != PYR_ELF_TRUNCATED || elf->needed_size > size);
    CHECK(elf->status != PYR_ELF_OK || elf->needed_size == 0);
    CHECK(elf->bind_now <= 1);
    check_text(elf);
}

typedef int reading(const char *path, struct pyr_elf *out);

static int read_symbols(const char *path, struct pyr_elf *out) {
    return pyr_elf_symbols(path, "", out); /* all of them */
}

/* The two answers lie on the heap, where a sanitizer guards their ends. */
static void read_twice(reading *read, const char *path, size_t size) {
    static struct pyr_elf *first, *second;
    if (first == NULL) {
        first = malloc(sizeof *first);
        second = malloc(sizeof *second);
        CHECK(first != NULL && second != NULL);
    }
    /* Whatever `out` held before must not show in the answer. */
    int free_fd = lowest_free_fd();
    memset(first, 0x00, sizeof *first);
    check(first, read(path, first), size);
    memset(second, 0xff, sizeof *second);
    check(second, read(path, second), size);
    CHECK(lowest_free_fd() == free_fd);
    CHECK(first->text_size == second->text_size);
    CHECK(memcmp(first->text, second->text, first->text_size) == 0);
    CHECK(first->status == second->status && first->needed_size == second->needed_size);
    CHECK(first->elf_class == second->elf_class && first->data == second->data);
    CHECK(first->machine == second->machine && first->type == second->type);
    CHECK(first->bind_now == second->bind_now);
}

/* One file for all inputs. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("fuzz_elf", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        CHECK(file >= 0);
    }
    CHECK(ftruncate(file, 0) == 0);
    CHECK(size == 0 || pwrite(file, data, size, 0) == (ssize_t)size);
    read_twice(pyr_elf_read, path, size);
    read_twice(read_symbols, path, size);
    return 0;
}

#ifndef PYR_LIBFUZZER

enum {
    MAX_SEEDS = 64,
    MAX_TARGETS = 16,
    MAX_MUTATIONS = 6,
};

/* A part of the seed where a change reaches the reader. */
struct target {
    uint64_t at;
    uint64_t length;
};

struct seed {
    uint8_t *bytes;
    size_t size;
    struct target targets[MAX_TARGETS];
    size_t count;
};

static void add_target(struct seed *seed, uint64_t at, uint64_t length) {
    if (seed->count < MAX_TARGETS && at < seed->size && length > 0) {
        uint64_t room = seed->size - at;
        seed->targets[seed->count++] = (struct target){at, length < room ? length : room};
    }
}

/* The seeds are trusted. An address is taken for an offset, which holds in the first segment,
 * where linkers put these tables. */
static void find_targets(struct seed *seed) {
    ElfW(Ehdr) header = {0};
    memcpy(&header, seed->bytes, seed->size < sizeof header ? seed->size : sizeof header);
    add_target(seed, 0, sizeof header);
    add_target(seed, header.e_phoff, header.e_phnum * sizeof(ElfW(Phdr)));
    for (size_t i = 0; i < header.e_phnum; i++) {
        ElfW(Phdr) segment;
        uint64_t at = header.e_phoff + i * sizeof segment;
        if (at > seed->size || seed->size - at < sizeof segment)
            return;
        memcpy(&segment, seed->bytes + at, sizeof segment);
        if (segment.p_type == PT_INTERP)
            add_target(seed, segment.p_offset, segment.p_filesz);
        if (segment.p_type != PT_DYNAMIC)
            continue;
        add_target(seed, segment.p_offset, segment.p_filesz);
        for (uint64_t k = 0; k < segment.p_filesz / sizeof(ElfW(Dyn)); k++) {
            ElfW(Dyn) entry;
            at = segment.p_offset + k * sizeof entry;
            if (at > seed->size || seed->size - at < sizeof entry)
                return;
            memcpy(&entry, seed->bytes + at, sizeof entry);
            if (entry.d_tag == DT_VERNEED || entry.d_tag == DT_VERDEF || entry.d_tag == DT_SYMTAB ||
                entry.d_tag == DT_HASH || entry.d_tag == DT_GNU_HASH)
                add_target(seed, entry.d_un.d_ptr, 512);
            else if (entry.d_tag == DT_STRTAB)
                add_target(seed, entry.d_un.d_ptr, 4096);
        }
    }
}

static uint64_t odd_value(const struct seed *seed, uint64_t present) {
    const uint64_t values[] = {
        0,
        1,
        UINT64_MAX,
        UINT64_MAX - 7,
        (uint64_t)1 << 63,
        (uint64_t)1 << 32,
        UINT32_MAX,
        (uint64_t)1 << 31,
        UINT16_MAX,
        4095,
        4096,
        seed->size,
        seed->size - 1,
        seed->size + 1,
        present + below(64),
        present - below(64),
        below(seed->size + 1),
        below(128),
        random_bits(),
    };
    return values[below(sizeof values / sizeof values[0])];
}

static uint64_t pick_place(const struct seed *seed, size_t size) {
    if (seed->count == 0 || below(16) == 0)
        return below(size);
    const struct target *target = &seed->targets[below(seed->count)];
    uint64_t at = target->at + below(target->length);
    if (below(2) == 0) /* most fields are aligned */
        at &= ~(uint64_t)7;
    return at < size ? at : below(size);
}

/* Change `bytes`, a copy of `seed`; the size that is left is returned. */
static size_t mutate(const struct seed *seed, const struct seed *other, uint8_t *bytes) {
    size_t size = seed->size;
    for (uint64_t n = 1 + below(MAX_MUTATIONS); n > 0 && size > 0; n--) {
        uint64_t at = pick_place(seed, size);
        uint64_t room = size - at;
        uint64_t width = (uint64_t)1 << below(4);
        uint64_t value = 0;
        width = width < room ? width : room;
        switch (below(8)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            bytes[at] = (uint8_t)random_bits();
            break;
        case 2: /* a cut: seldom in the middle of nowhere */
            if (below(4) == 0)
                size = at;
            break;
        case 3: { /* a splice */
            uint64_t from = pick_place(other, other->size);
            uint64_t length = 1 + below(64);
            length = length < room ? length : room;
            length = length < other->size - from ? length : other->size - from;
            memcpy(bytes + at, other->bytes + from, length);
            break;
        }
        case 4: { /* a table entry that is there twice */
            uint64_t from = pick_place(seed, size);
            uint64_t length = room < size - from ? room : size - from;
            memmove(bytes + at, bytes + from, length < 24 ? length : 24);
            break;
        }
        default:
            memcpy(&value, bytes + at, width);
            value = odd_value(seed, value);
            memcpy(bytes + at, &value, width);
            break;
        }
    }
    return size;
}

static struct seed load(const char *path) {
    struct seed seed = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0);
    seed.size = (size_t)st.st_size;
    seed.bytes = malloc(seed.size);
    CHECK(seed.bytes != NULL && read(fd, seed.bytes, seed.size) == st.st_size);
    close(fd);
    find_targets(&seed);
    return seed;
}

int main(int argc, char **argv) {
    static struct seed seeds[MAX_SEEDS];
    size_t count = 0, largest = 0;
    for (int i = 2; i < argc && count < MAX_SEEDS; i++) {
        seeds[count] = load(argv[i]);
        largest = seeds[count].size > largest ? seeds[count].size : largest;
        count++;
    }
    if (count == 0) {
        fprintf(stderr, "usage: %s SECONDS SEED...\n", argv[0]);
        return 2;
    }
    uint8_t *bytes = malloc(largest);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < count; i++)
        LLVMFuzzerTestOneInput(seeds[i].bytes, seeds[i].size);

    double end = now() + atof(argv[1]);
    unsigned long long executions = count;
    for (; now() < end; executions++) {
        const struct seed *seed = &seeds[below(count)];
        memcpy(bytes, seed->bytes, seed->size);
        LLVMFuzzerTestOneInput(bytes, mutate(seed, &seeds[below(count)], bytes));
    }
    printf("%llu executions\n", executions);
    free(bytes);
    for (size_t i = 0; i < count; i++)
        free(seeds[i].bytes);
    return 0;
}

#endif
