/* Nothing in the file is trusted: every offset is compared with the size of the file or of its
 * segment before it is used, and every walk ends because each step appends an entry or is counted.
 * The view is the loader's: tables are found by address through PT_DYNAMIC and PT_LOAD, for a
 * stripped file has no sections; if the loader is lenient, so is this. */
#define _FILE_OFFSET_BITS 64

#include "elf.h"

#include <elf.h>
#ifndef EM_NONE
#error "native/elf.h hides the system's <elf.h>: put native/ on the path with -iquote, not -I"
#endif
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    WINDOW = 2 * PAGE,
    MAX_SEGMENTS = 128, /* real libraries have about ten */
    MAX_DYNAMIC = 2048,
    MAX_ENTRIES = 4096,
    MAX_SYMBOLS = 1 << 20, /* of torch's largest library, some 400,000 */
};

/* A part of the file that is held in memory. */
struct window {
    uint64_t at;
    size_t held;
    unsigned char bytes[WINDOW];
};

/* A part of the file that lies within it as a whole. */
struct stretch {
    uint64_t at;
    uint64_t length;
};

struct reader {
    struct pyr_elf *out;
    int fd;
    const char *prefix; /* of the symbols that are wanted, or NULL */
    unsigned entries;
    size_t segments;
    ElfW(Phdr) segment[MAX_SEGMENTS];
    struct window tables;
    struct window strings; /* apart, for the tables refer to strings at each step */
};

/* Addresses and counts from the dynamic section; an address of 0 is absent. */
struct dynamic {
    uint64_t strings;
    uint64_t strings_length;
    uint64_t needs;
    uint64_t needs_count;
    uint64_t definitions;
    uint64_t definitions_count;
    uint64_t symbols;
    uint64_t hash;
    uint64_t gnu_hash;
};

/* Is [at, at + length) within the file? */
static enum pyr_elf_status require(struct pyr_elf *out, uint64_t at, uint64_t length) {
    if (length > UINT64_MAX - at)
        return PYR_ELF_MALFORMED;
    if (at + length <= out->size)
        return PYR_ELF_OK;
    if (at + length > out->needed_size)
        out->needed_size = at + length;
    return PYR_ELF_TRUNCATED;
}

/* Make `window` hold [at, at + length), length <= PAGE. It starts at a page, so that strings which
 * are referred to backwards stay in it too. */
static enum pyr_elf_status slide(struct reader *r, struct window *window, uint64_t at,
                                 size_t length) {
    enum pyr_elf_status status = require(r->out, at, length);
    if (status != PYR_ELF_OK)
        return status;
    if (at >= window->at && at - window->at <= window->held &&
        length <= window->held - (at - window->at))
        return PYR_ELF_OK;

    window->at = at - at % PAGE;
    window->held = 0;
    while (window->held < at % PAGE + length) {
        ssize_t got = pread(r->fd, window->bytes + window->held, WINDOW - window->held,
                            (off_t)(window->at + window->held));
        if (got > 0) {
            window->held += (size_t)got;
        } else if (got == 0) { /* cut short since fstat */
            r->out->size = window->at + window->held;
            r->out->needed_size = at + length;
            return PYR_ELF_TRUNCATED;
        } else if (errno != EINTR) {
            r->out->sys_errno = errno;
            return PYR_ELF_CANNOT_READ;
        }
    }
    return PYR_ELF_OK;
}

/* Copy `length` <= PAGE bytes: nothing in the file need be aligned. */
static enum pyr_elf_status fetch(struct reader *r, uint64_t at, void *to, size_t length) {
    enum pyr_elf_status status = slide(r, &r->tables, at, length);
    if (status == PYR_ELF_OK)
        memcpy(to, r->tables.bytes + (at - r->tables.at), length);
    return status;
}

/* The same within a table, at an offset that the table itself gave. */
static enum pyr_elf_status fetch_in(struct reader *r, struct stretch table, uint64_t offset,
                                    void *to, size_t length) {
    if (offset > table.length || length > table.length - offset)
        return PYR_ELF_MALFORMED;
    return fetch(r, table.at + offset, to, length);
}

/* Append the string at `offset` of `table`. Half an entry is never counted in text_size. */
static enum pyr_elf_status append(struct reader *r, enum pyr_elf_entry kind, struct stretch table,
                                  uint64_t offset) {
    struct pyr_elf *out = r->out;
    size_t used = out->text_size;
    if (used == sizeof out->text || r->entries++ == MAX_ENTRIES)
        return PYR_ELF_TOO_MUCH;
    out->text[used++] = (char)kind;

    while (offset < table.length) {
        uint64_t at = table.at + offset;
        enum pyr_elf_status status = slide(r, &r->strings, at, 1);
        if (status != PYR_ELF_OK)
            return status;
        const unsigned char *from = r->strings.bytes + (at - r->strings.at);
        size_t room = r->strings.held - (size_t)(at - r->strings.at);
        if (room > table.length - offset)
            room = (size_t)(table.length - offset);
        const unsigned char *end = memchr(from, '\0', room);
        size_t length = end != NULL ? (size_t)(end - from) + 1 : room;
        if (length > sizeof out->text - used)
            return PYR_ELF_TOO_MUCH;
        memcpy(out->text + used, from, length);
        used += length;
        if (end != NULL) {
            out->text_size = (uint32_t)used;
            return PYR_ELF_OK;
        }
        offset += length;
    }
    return PYR_ELF_MALFORMED;
}

/* The part of the file that is loaded at `address`, to the end of its segment. */
static enum pyr_elf_status locate(const struct reader *r, uint64_t address, struct stretch *to) {
    for (size_t i = 0; i < r->segments; i++) {
        const ElfW(Phdr) *segment = &r->segment[i];
        if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
            address - segment->p_vaddr < segment->p_filesz) {
            uint64_t into = address - segment->p_vaddr;
            *to = (struct stretch){segment->p_offset + into, segment->p_filesz - into};
            return PYR_ELF_OK;
        }
    }
    return PYR_ELF_MALFORMED;
}

static enum pyr_elf_status read_header(struct reader *r, ElfW(Ehdr) * header) {
    struct pyr_elf *out = r->out;
    *header = (ElfW(Ehdr)){0};
    size_t there = out->size < sizeof *header ? (size_t)out->size : sizeof *header;
    enum pyr_elf_status status = fetch(r, 0, header, there);
    if (status != PYR_ELF_OK)
        return status;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return PYR_ELF_NOT_ELF;
    out->elf_class = header->e_ident[EI_CLASS];
    out->data = header->e_ident[EI_DATA];

    status = require(out, 0, EI_NIDENT);
    if (status != PYR_ELF_OK)
        return status;
    if ((out->elf_class != ELFCLASS32 && out->elf_class != ELFCLASS64) ||
        (out->data != ELFDATA2LSB && out->data != ELFDATA2MSB) ||
        header->e_ident[EI_VERSION] != EV_CURRENT)
        return PYR_ELF_MALFORMED;
    status =
        require(out, 0, out->elf_class == ELFCLASS64 ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr));
    if (status != PYR_ELF_OK)
        return status;

    uint8_t host_class, host_data;
    uint16_t host_machine;
    pyr_elf_host(&host_class, &host_data, &host_machine);
    out->type = header->e_type; /* these two lie at the same place in both classes */
    out->machine = header->e_machine;
    if (out->data != host_data) {
        out->type = __builtin_bswap16(out->type);
        out->machine = __builtin_bswap16(out->machine);
    }
    return out->elf_class == host_class && out->data == host_data ? PYR_ELF_OK : PYR_ELF_FOREIGN;
}

static enum pyr_elf_status read_segments(struct reader *r, const ElfW(Ehdr) * header) {
    const size_t each = sizeof r->segment[0];
    if (header->e_phnum == 0) /* an object file */
        return PYR_ELF_OK;
    if (header->e_phentsize != each)
        return PYR_ELF_MALFORMED;
    if (header->e_phnum > MAX_SEGMENTS)
        return PYR_ELF_TOO_MUCH;
    enum pyr_elf_status status = require(r->out, header->e_phoff, header->e_phnum * each);
    for (size_t i = 0; i < header->e_phnum && status == PYR_ELF_OK; i++)
        status = fetch(r, header->e_phoff + i * each, &r->segment[i], each);
    if (status != PYR_ELF_OK)
        return status;
    r->segments = header->e_phnum;

    for (size_t i = 0; i < r->segments; i++) {
        const ElfW(Phdr) *segment = &r->segment[i];
        if (segment->p_type != PT_LOAD || segment->p_filesz == 0)
            continue;
        enum pyr_elf_status extent = require(r->out, segment->p_offset, segment->p_filesz);
        if (extent == PYR_ELF_MALFORMED)
            return extent;
        if (extent != PYR_ELF_OK) /* no return: needed_size is to be the largest extent */
            status = extent;
    }
    return status;
}

static enum pyr_elf_status read_interpreter(struct reader *r) {
    for (size_t i = 0; i < r->segments; i++) {
        struct stretch name = {r->segment[i].p_offset, r->segment[i].p_filesz};
        if (r->segment[i].p_type != PT_INTERP)
            continue;
        enum pyr_elf_status status = require(r->out, name.at, name.length);
        return status == PYR_ELF_OK ? append(r, PYR_ELF_INTERP, name, 0) : status;
    }
    return PYR_ELF_OK;
}

/* Past the end of what the file holds, memory is zero: DT_NULL. */
static enum pyr_elf_status fetch_dynamic(struct reader *r, struct stretch table, size_t index,
                                         ElfW(Dyn) * entry) {
    *entry = (ElfW(Dyn)){.d_tag = DT_NULL};
    if (index == MAX_DYNAMIC)
        return PYR_ELF_TOO_MUCH;
    if (index >= table.length / sizeof *entry)
        return PYR_ELF_OK;
    return fetch(r, table.at + index * sizeof *entry, entry, sizeof *entry);
}

static enum pyr_elf_status gather(struct reader *r, struct stretch table, struct dynamic *dynamic) {
    for (size_t i = 0;; i++) {
        ElfW(Dyn) entry;
        enum pyr_elf_status status = fetch_dynamic(r, table, i, &entry);
        if (status != PYR_ELF_OK || entry.d_tag == DT_NULL)
            return status;
        uint64_t value = entry.d_un.d_val;
        switch (entry.d_tag) {
        case DT_STRTAB:
            dynamic->strings = value;
            break;
        case DT_STRSZ:
            dynamic->strings_length = value;
            break;
        case DT_VERNEED:
            dynamic->needs = value;
            break;
        case DT_VERNEEDNUM:
            dynamic->needs_count = value;
            break;
        case DT_VERDEF:
            dynamic->definitions = value;
            break;
        case DT_VERDEFNUM:
            dynamic->definitions_count = value;
            break;
        case DT_SYMTAB:
            dynamic->symbols = value;
            break;
        case DT_HASH:
            dynamic->hash = value;
            break;
        case DT_GNU_HASH:
            dynamic->gnu_hash = value;
            break;
        case DT_BIND_NOW:
            r->out->bind_now = 1;
            break;
        case DT_FLAGS:
            r->out->bind_now |= (value & DF_BIND_NOW) != 0;
            break;
        case DT_FLAGS_1:
            r->out->bind_now |= (value & DF_1_NOW) != 0;
            break;
        default:
            break;
        }
    }
}

static enum pyr_elf_status append_names(struct reader *r, struct stretch table,
                                        struct stretch strings) {
    for (size_t i = 0;; i++) {
        ElfW(Dyn) entry;
        enum pyr_elf_status status = fetch_dynamic(r, table, i, &entry);
        if (status != PYR_ELF_OK || entry.d_tag == DT_NULL)
            return status;
        enum pyr_elf_entry kind;
        switch (entry.d_tag) {
        case DT_NEEDED:
            kind = PYR_ELF_NEEDED;
            break;
        case DT_SONAME:
            kind = PYR_ELF_SONAME;
            break;
        case DT_RPATH:
            kind = PYR_ELF_RPATH;
            break;
        case DT_RUNPATH:
            kind = PYR_ELF_RUNPATH;
            break;
        default:
            continue;
        }
        status = append(r, kind, strings, entry.d_un.d_val);
        if (status != PYR_ELF_OK)
            return status;
    }
}

/* The offsets of a chain lead forwards by 32 bits at most, and past the table the walk ends: their
 * sums cannot wrap. */
static enum pyr_elf_status append_needs(struct reader *r, const struct dynamic *dynamic,
                                        struct stretch strings) {
    struct stretch table;
    enum pyr_elf_status status = locate(r, dynamic->needs, &table);
    uint64_t at = 0;
    for (uint64_t n = 0; status == PYR_ELF_OK && n < dynamic->needs_count; n++) {
        ElfW(Verneed) need = {0};
        status = fetch_in(r, table, at, &need, sizeof need);
        if (status == PYR_ELF_OK && need.vn_version != VER_NEED_CURRENT)
            status = PYR_ELF_MALFORMED;
        if (status == PYR_ELF_OK)
            status = append(r, PYR_ELF_VERNEED_FILE, strings, need.vn_file);
        uint64_t name_at = at + need.vn_aux;
        for (unsigned k = 0; status == PYR_ELF_OK && k < need.vn_cnt; k++) {
            ElfW(Vernaux) name = {0};
            status = fetch_in(r, table, name_at, &name, sizeof name);
            if (status == PYR_ELF_OK)
                status = append(r, PYR_ELF_VERNEED, strings, name.vna_name);
            if (name.vna_next == 0)
                break;
            name_at += name.vna_next;
        }
        if (need.vn_next == 0)
            break;
        at += need.vn_next;
    }
    return status;
}

/* Of each definition its first name; those that follow are versions that it inherits. */
static enum pyr_elf_status append_definitions(struct reader *r, const struct dynamic *dynamic,
                                              struct stretch strings) {
    struct stretch table;
    enum pyr_elf_status status = locate(r, dynamic->definitions, &table);
    uint64_t at = 0;
    for (uint64_t n = 0; status == PYR_ELF_OK && n < dynamic->definitions_count; n++) {
        ElfW(Verdef) definition = {0};
        ElfW(Verdaux) name = {0};
        status = fetch_in(r, table, at, &definition, sizeof definition);
        if (status == PYR_ELF_OK && definition.vd_version != VER_DEF_CURRENT)
            status = PYR_ELF_MALFORMED;
        if (status == PYR_ELF_OK)
            status = fetch_in(r, table, at + definition.vd_aux, &name, sizeof name);
        if (status == PYR_ELF_OK)
            status = append(r, PYR_ELF_VERDEF, strings, name.vda_name);
        if (definition.vd_next == 0)
            break;
        at += definition.vd_next;
    }
    return status;
}

/* No header says how many symbols there are: the hash tables do. That of GNU holds the defined ones
 * only, which lie after all others; its last chain ends with the last symbol. */
static enum pyr_elf_status count_by_gnu_hash(struct reader *r, uint64_t address, uint64_t *count) {
    struct {
        uint32_t buckets, first, bloom_size, bloom_shift;
    } header = {0, 0, 0, 0};
    struct stretch table;
    enum pyr_elf_status status = locate(r, address, &table);
    if (status == PYR_ELF_OK)
        status = fetch_in(r, table, 0, &header, sizeof header);
    if (status == PYR_ELF_OK && header.buckets > MAX_SYMBOLS)
        status = PYR_ELF_TOO_MUCH;
    uint64_t at = sizeof header + (uint64_t)header.bloom_size * sizeof(ElfW(Addr));
    uint32_t last = 0, entry = 0;
    for (uint32_t i = 0; status == PYR_ELF_OK && i < header.buckets; i++, at += sizeof entry) {
        status = fetch_in(r, table, at, &entry, sizeof entry);
        last = entry > last ? entry : last;
    }
    *count = header.first;
    if (status == PYR_ELF_OK && last == 0 && header.first <= 1)
        return PYR_ELF_TOO_MUCH; /* GNU ld writes this if nothing is defined: no count is known */
    if (status != PYR_ELF_OK || last < header.first)
        return status;
    for (entry = 0; status == PYR_ELF_OK && !(entry & 1) && last <= MAX_SYMBOLS; last++)
        status =
            fetch_in(r, table, at + (last - header.first) * sizeof entry, &entry, sizeof entry);
    *count = last;
    return status;
}

static enum pyr_elf_status count_symbols(struct reader *r, const struct dynamic *dynamic,
                                         uint64_t *count) {
    if (dynamic->hash == 0)
        return dynamic->gnu_hash ? count_by_gnu_hash(r, dynamic->gnu_hash, count)
                                 : PYR_ELF_MALFORMED;
    Elf_Symndx header[2] = {0, 0}; /* buckets, and chains: one for each symbol */
    struct stretch table;
    enum pyr_elf_status status = locate(r, dynamic->hash, &table);
    if (status == PYR_ELF_OK)
        status = fetch_in(r, table, 0, header, sizeof header);
    *count = header[1];
    return status;
}

static enum pyr_elf_status has_prefix(struct reader *r, struct stretch strings, uint64_t offset,
                                      bool *answer) {
    *answer = true;
    for (const char *wanted = r->prefix; *wanted && *answer; wanted++, offset++) {
        if (offset >= strings.length)
            return PYR_ELF_MALFORMED;
        uint64_t at = strings.at + offset;
        enum pyr_elf_status status = slide(r, &r->strings, at, 1);
        if (status != PYR_ELF_OK)
            return status;
        *answer = r->strings.bytes[at - r->strings.at] == (unsigned char)*wanted;
    }
    return PYR_ELF_OK;
}

static enum pyr_elf_status append_symbols(struct reader *r, const struct dynamic *dynamic,
                                          struct stretch strings) {
    struct stretch table;
    uint64_t count = 0;
    enum pyr_elf_status status = locate(r, dynamic->symbols, &table);
    if (status == PYR_ELF_OK)
        status = count_symbols(r, dynamic, &count);
    if (status == PYR_ELF_OK && count > MAX_SYMBOLS)
        status = PYR_ELF_TOO_MUCH;
    for (uint64_t i = 1; status == PYR_ELF_OK && i < count; i++) {
        ElfW(Sym) symbol = {0};
        bool wanted = false;
        status = fetch_in(r, table, i * sizeof symbol, &symbol, sizeof symbol);
        if (status == PYR_ELF_OK)
            status = has_prefix(r, strings, symbol.st_name, &wanted);
        if (status == PYR_ELF_OK && wanted)
            status = append(r, symbol.st_shndx ? PYR_ELF_DEFINED : PYR_ELF_UNDEFINED, strings,
                            symbol.st_name);
    }
    return status;
}

static enum pyr_elf_status read_tables(struct reader *r, struct stretch table) {
    struct dynamic dynamic = {
        .strings_length = UINT64_MAX, /* where not given: to the end of the segment; */
        .needs_count = UINT64_MAX,    /* to the end of the chain */
        .definitions_count = UINT64_MAX,
    };
    enum pyr_elf_status status = gather(r, table, &dynamic);
    struct stretch strings = {0, 0};
    if (status == PYR_ELF_OK && dynamic.strings != 0)
        status = locate(r, dynamic.strings, &strings);
    if (strings.length > dynamic.strings_length)
        strings.length = dynamic.strings_length;
    if (status == PYR_ELF_OK && r->prefix)
        return append_symbols(r, &dynamic, strings);
    if (status == PYR_ELF_OK)
        status = append_names(r, table, strings);
    if (status == PYR_ELF_OK && dynamic.needs != 0)
        status = append_needs(r, &dynamic, strings);
    if (status == PYR_ELF_OK && dynamic.definitions != 0)
        status = append_definitions(r, &dynamic, strings);
    return status;
}

/* A shared object without a dynamic section is none: the loader refuses it. */
static enum pyr_elf_status read_dynamic(struct reader *r) {
    for (size_t i = 0; i < r->segments; i++) {
        if (r->segment[i].p_type != PT_DYNAMIC)
            continue;
        struct stretch table;
        enum pyr_elf_status status = locate(r, r->segment[i].p_vaddr, &table);
        return status == PYR_ELF_OK ? read_tables(r, table) : status;
    }
    return r->out->type == ET_DYN ? PYR_ELF_MALFORMED : PYR_ELF_OK;
}

static enum pyr_elf_status read_file(struct reader *r) {
    struct stat st;
    if (fstat(r->fd, &st) != 0) {
        r->out->sys_errno = errno;
        return PYR_ELF_CANNOT_READ;
    }
    r->out->device = st.st_dev;
    r->out->inode = st.st_ino;
    if (!S_ISREG(st.st_mode))
        return PYR_ELF_NOT_REGULAR;
    r->out->size = (uint64_t)st.st_size;
    if (st.st_size == 0)
        return PYR_ELF_EMPTY;

    ElfW(Ehdr) header;
    enum pyr_elf_status status = read_header(r, &header);
    if (status == PYR_ELF_OK)
        status = read_segments(r, &header);
    if (status == PYR_ELF_OK && !r->prefix)
        status = read_interpreter(r);
    if (status == PYR_ELF_OK)
        status = read_dynamic(r);
    return status;
}

static int read_path(const char *path, const char *prefix, struct pyr_elf *out) {
    memset(out, 0, offsetof(struct pyr_elf, text) + 1);
    struct reader r; /* its buffers are left as they are: held and segments say what is valid */
    r.out = out;
    r.prefix = prefix;
    r.entries = 0;
    r.segments = 0;
    r.tables.at = r.tables.held = 0;
    r.strings.at = r.strings.held = 0;
    do
        r.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (r.fd < 0 && errno == EINTR);
    if (r.fd < 0) {
        out->sys_errno = errno;
        /* ENXIO: a socket, or a device that nothing drives */
        out->status = errno == ENXIO ? PYR_ELF_NOT_REGULAR : PYR_ELF_CANNOT_OPEN;
        return out->status;
    }
    out->status = (int32_t)read_file(&r);
    close(r.fd);
    return out->status;
}

int pyr_elf_read(const char *path, struct pyr_elf *out) {
    return read_path(path, NULL, out);
}

int pyr_elf_symbols(const char *path, const char *prefix, struct pyr_elf *out) {
    return read_path(path, prefix, out);
}

void pyr_elf_host(uint8_t *elf_class, uint8_t *data, uint16_t *machine) {
    *elf_class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    *data = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
#if defined(__x86_64__)
    *machine = EM_X86_64;
#elif defined(__aarch64__)
    *machine = EM_AARCH64;
#elif defined(__powerpc64__)
    *machine = EM_PPC64;
#elif defined(__riscv)
    *machine = EM_RISCV;
#elif defined(__s390x__)
    *machine = EM_S390;
#elif defined(__i386__)
    *machine = EM_386;
#elif defined(__arm__)
    *machine = EM_ARM;
#else
#error "which e_machine is this? add it here"
#endif
}
