#include "scope.h"

#include <dlfcn.h>
#include <string.h>

size_t pyr_scope_owner(const char *symbol, char *path, size_t size) {
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, symbol);
    if (!address || !dladdr(address, &info) || !info.dli_fname) {
        return 0;
    }
    size_t length = strlen(info.dli_fname);
    if (length >= size) {
        return 0;
    }
    memcpy(path, info.dli_fname, length + 1);
    return length;
}
