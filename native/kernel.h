/* System calls that the C library this is built with may not name: glibc has memfd_create
 * since 2.27, and the headers of Linux name pidfd_open since 5.3 and close_range since 5.9 (RHEL 8
 * has glibc 2.28 and the headers of 4.18). These two have the same number on every architecture. A
 * kernel that lacks one answers ENOSYS. */
#ifndef PYR_KERNEL_H
#define PYR_KERNEL_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_memfd_create /* Linux 3.17; RHEL 7 has the headers of 3.10 */
#if defined(__x86_64__)
#define SYS_memfd_create 319
#elif defined(__aarch64__)
#define SYS_memfd_create 279
#else
#error "the headers of this kernel do not name memfd_create: take those of Linux 3.17 or newer"
#endif
#endif

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#define MFD_ALLOW_SEALING 2U
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

static inline int pyr_memfd_create(const char *name, unsigned flags) {
    return (int)syscall(SYS_memfd_create, name, flags);
}

static inline int pyr_pidfd_open(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Closes `first` and all descriptors above it. For a process that is to be exec'd: allocates
 * nothing. */
void pyr_close_from(unsigned first);

#endif
