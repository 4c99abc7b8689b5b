/* What is wrong with a library's file itself, whatever it needs of others. */
#ifndef PYR_FAULT_H
#define PYR_FAULT_H

#include "elf.h"
#include "status.h"

/* PYR_LOADABLE if the file at `path`, whose headers `elf` holds, is a sound library for this
 * machine and its C library. Only statvfs(2) is called. */
enum pyr_status pyr_fault_of(const char *path, const struct pyr_elf *elf);

/* The same for a name as dlopen takes it: PYR_LOADABLE also if the loader is to search for it. */
enum pyr_status pyr_fault_find(const char *name, struct pyr_elf *elf);

#endif
