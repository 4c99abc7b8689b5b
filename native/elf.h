/* What an ELF file says about itself, read with pread into bounded buffers and never mapped:
 * a file that is cut short under a mapping is a SIGBUS in the caller. */
#ifndef PYR_ELF_H
#define PYR_ELF_H

#include <stdint.h>

enum {
    PYR_ELF_TEXT_SIZE = 65536,
};

enum pyr_elf_status {
    PYR_ELF_OK = 0,
    PYR_ELF_CANNOT_OPEN, /* sys_errno says why */
    PYR_ELF_CANNOT_READ, /* sys_errno says why */
    PYR_ELF_NOT_REGULAR, /* directory, FIFO, socket, device */
    PYR_ELF_EMPTY,       /* no byte at all */
    PYR_ELF_NOT_ELF,     /* no ELF magic */
    PYR_ELF_TRUNCATED,   /* the headers name bytes that lie past the end of the file */
    PYR_ELF_MALFORMED,   /* the headers contradict themselves */
    PYR_ELF_FOREIGN,     /* sound header of another class or byte order: nothing more is read */
    PYR_ELF_TOO_MUCH,    /* sound as far as read, but a table exceeds what this reader accepts */
};

/* The kind of an entry in pyr_elf.text. */
enum pyr_elf_entry {
    PYR_ELF_NEEDED = 'N', /* in the order of the file, which is the loader's */
    PYR_ELF_SONAME = 'S',
    PYR_ELF_RPATH = 'R',
    PYR_ELF_RUNPATH = 'U',
    PYR_ELF_INTERP = 'I',
    PYR_ELF_VERNEED_FILE = 'F', /* the following 'V' entries are versions wanted of this file */
    PYR_ELF_VERNEED = 'V',
    PYR_ELF_VERDEF = 'D', /* a version that this file defines, its own name included: the loader
                           * takes that for a version as well */
    /* Only of pyr_elf_symbols: */
    PYR_ELF_DEFINED = 'd',
    PYR_ELF_UNDEFINED = 'u', /* bound by the loader to whatever object comes first */
};

struct pyr_elf {
    int32_t status;       /* enum pyr_elf_status */
    int32_t sys_errno;    /* of the call that failed, else 0 */
    uint64_t size;        /* of a regular file, bytes */
    uint64_t needed_size; /* bytes that the headers want, if status is PYR_ELF_TRUNCATED */
    uint64_t device;
    uint64_t inode;
    uint8_t elf_class;            /* 1: 32 bit, 2: 64 bit; valid once the magic was seen */
    uint8_t data;                 /* 1: little endian, 2: big endian; likewise */
    uint16_t machine;             /* e_machine, 0 if the header is cut */
    uint16_t type;                /* e_type, likewise; 3 is a shared object */
    uint8_t bind_now;             /* 1: DF_BIND_NOW, DF_1_NOW or DT_BIND_NOW */
    uint32_t text_size;           /* bytes used in text */
    char text[PYR_ELF_TEXT_SIZE]; /* entries: one kind byte, then a NUL-terminated string */
};

/* Read `path`. Never blocks on a FIFO, does a bounded amount of work whatever the headers claim,
 * allocates nothing and leaves no fd behind. What was read before a failure stays in `out`; bytes
 * of text beyond text_size are undefined. Returns out->status. */
int pyr_elf_read(const char *path, struct pyr_elf *out);

/* Read the dynamic symbols of `path` whose names begin with `prefix`, and nothing else into text.
 * Otherwise like pyr_elf_read. */
int pyr_elf_symbols(const char *path, const char *prefix, struct pyr_elf *out);

/* Class, byte order and e_machine of the machine this was built for. */
void pyr_elf_host(uint8_t *elf_class, uint8_t *data, uint16_t *machine);

#endif
