#include "fault.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    SHARED_OBJECT = 3, /* e_type */
    NAME_LENGTH = 255, /* bytes in one component of a path */
};

static enum pyr_status of_errno(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
        return PYR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return PYR_PERMISSION;
    default:
        return PYR_NOT_LOADABLE;
    }
}

/* Linked against another C library than glibc. */
static bool is_foreign(const struct pyr_elf *elf) {
    const char *end = elf->text + elf->text_size;
    for (const char *at = elf->text; at < end; at += strlen(at) + 1) {
        if (*at == PYR_ELF_NEEDED && (strcmp(at + 1, "libc.so") == 0 ||
                                      strncmp(at + 1, "libc.musl-", strlen("libc.musl-")) == 0)) {
            return true;
        }
    }
    return false;
}

/* What keeps a sound file from being a library for this machine. */
static enum pyr_status of_sound(const char *path, const struct pyr_elf *elf) {
    uint8_t elf_class, data;
    uint16_t machine;
    pyr_elf_host(&elf_class, &data, &machine);
    if (elf->elf_class != elf_class || elf->data != data || elf->machine != machine) {
        return PYR_WRONG_ARCH;
    }
    if (elf->type != SHARED_OBJECT || is_foreign(elf)) {
        return PYR_NOT_LOADABLE;
    }
    struct statvfs mount;
    return statvfs(path, &mount) == 0 && mount.f_flag & ST_NOEXEC ? PYR_NOEXEC : PYR_LOADABLE;
}

enum pyr_status pyr_fault_of(const char *path, const struct pyr_elf *elf) {
    switch ((enum pyr_elf_status)elf->status) {
    case PYR_ELF_CANNOT_OPEN:
        return of_errno(elf->sys_errno);
    case PYR_ELF_CANNOT_READ:
        return PYR_NOT_LOADABLE;
    case PYR_ELF_EMPTY:
    case PYR_ELF_TRUNCATED:
        return PYR_TRUNCATED;
    case PYR_ELF_NOT_REGULAR:
    case PYR_ELF_NOT_ELF:
    case PYR_ELF_MALFORMED:
        return PYR_NOT_ELF;
    default:
        return of_sound(path, elf);
    }
}

/* A limit or a policy that this process met and that says nothing about the file: the loader may
 * fare better, or says the same in its own words. */
static bool is_refusal(int error) {
    switch (error) {
    case EAGAIN:
    case EINTR:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSYS:
    case EPERM:
        return true;
    default:
        return false;
    }
}

enum pyr_status pyr_fault_find(const char *name, struct pyr_elf *elf) {
    size_t length = strlen(name);
    /* dlopen("") would mean the program itself. */
    if (length > 0 && length <= NAME_LENGTH && !strchr(name, '/')) {
        return PYR_LOADABLE;
    }
    pyr_elf_read(name, elf);
    return is_refusal(elf->sys_errno) ? PYR_LOADABLE : pyr_fault_of(name, elf);
}
