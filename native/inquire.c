#include "inquire.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(void *) == 8, "relocations are read in their 64-bit form");

typedef ElfW(Sym) sym_t;
typedef ElfW(Dyn) dyn_t;
typedef ElfW(Rela) rela_t;
typedef ElfW(Half) half_t;
typedef ElfW(Verneed) verneed_t;
typedef ElfW(Vernaux) vernaux_t;

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static const char *owner_of(void *address) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

/* Asks a mapped library for its version; neither function initialises anything. */
static void inquire_version(struct pyr_board *board, enum pyr_wire_kind kind, const char *path,
                            const char *name) {
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    /* ISO C has no conversion from an object pointer to a function; POSIX promises this one. */
    union {
        void *object;
        int (*function)(int *);
    } ask = {.object = handle ? dlsym(handle, name) : NULL};
    int version = 0;
    int64_t answer = ask.object ? ask.function(&version) : PYR_WIRE_NO_FUNCTION;
    pyr_board_post(board, kind, version, answer, path);
}

/* Posts every mapped object from `first` on, and asks those that answer for CUDA. */
static void inquire_objects(struct pyr_board *board, const struct link_map *first) {
    for (const struct link_map *map = first; map; map = map->l_next) {
        if (map->l_name[0] != '\0') {
            pyr_board_post(board, PYR_WIRE_OBJECT, 0, 0, map->l_name);
        }
    }
    for (const struct link_map *map = first; map; map = map->l_next) {
        if (starts_with(base_name(map->l_name), "libcudart.so")) {
            inquire_version(board, PYR_WIRE_RUNTIME, map->l_name, "cudaRuntimeGetVersion");
        } else if (starts_with(base_name(map->l_name), "libcuda.so")) {
            inquire_version(board, PYR_WIRE_DRIVER, map->l_name, "cuDriverGetVersion");
        }
    }
}

struct dynamic {
    const char *strings;
    const sym_t *symbols;
    const half_t *versions;
    const verneed_t *needs;
    size_t needs_count;
    const rela_t *lazy; /* what is bound at the first call */
    size_t lazy_size;
};

static struct dynamic dynamic_read(const struct link_map *map) {
    struct dynamic found = {0};
    for (const dyn_t *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        /* glibc has relocated these pointers in place, except where the section is read-only. */
        ElfW(Addr) address = entry->d_un.d_ptr;
        const void *pointer =
            (const void *)(address < map->l_addr ? address + map->l_addr : address);
        switch (entry->d_tag) {
        case DT_STRTAB:
            found.strings = pointer;
            break;
        case DT_SYMTAB:
            found.symbols = pointer;
            break;
        case DT_VERSYM:
            found.versions = pointer;
            break;
        case DT_VERNEED:
            found.needs = pointer;
            break;
        case DT_VERNEEDNUM:
            found.needs_count = entry->d_un.d_val;
            break;
        case DT_JMPREL:
            found.lazy = pointer;
            break;
        case DT_PLTRELSZ:
            found.lazy_size = entry->d_un.d_val;
            break;
        default:
            break;
        }
    }
    return found;
}

static const char *version_name(const struct dynamic *dynamic, size_t symbol) {
    if (!dynamic->versions || !dynamic->needs) {
        return NULL;
    }
    half_t index = dynamic->versions[symbol] & 0x7fff;
    const char *need = (const char *)dynamic->needs;
    for (size_t i = 0; i < dynamic->needs_count; i++) {
        const verneed_t *file = (const void *)need;
        const char *at = need + file->vn_aux;
        for (size_t j = 0; j < file->vn_cnt; j++) {
            const vernaux_t *version = (const void *)at;
            if ((version->vna_other & 0x7fff) == index) {
                return dynamic->strings + version->vna_name;
            }
            at += version->vna_next;
        }
        need += file->vn_next;
    }
    return NULL;
}

static bool symbol_is_defined(void *handle, const char *name, const char *version) {
    if (version) {
        return dlvsym(RTLD_DEFAULT, name, version) || dlvsym(handle, name, version);
    }
    return dlsym(RTLD_DEFAULT, name) || dlsym(handle, name);
}

/* dlerror names one undefined symbol; this names them all. Only those are looked at that are bound
 * at their first call: the loader has found all others, or the library would not be here. */
static void inquire_undefined(struct pyr_board *board, void *handle) {
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        return;
    }
    struct dynamic dynamic = dynamic_read(map);
    if (!dynamic.symbols || !dynamic.strings || !dynamic.lazy) {
        return;
    }
    for (size_t i = 0; i < dynamic.lazy_size / sizeof *dynamic.lazy; i++) {
        size_t index = ELF64_R_SYM(dynamic.lazy[i].r_info);
        const sym_t *symbol = &dynamic.symbols[index];
        if (index == 0 || symbol->st_shndx != SHN_UNDEF ||
            ELF64_ST_BIND(symbol->st_info) == STB_WEAK) {
            continue;
        }
        const char *name = dynamic.strings + symbol->st_name;
        const char *version = version_name(&dynamic, index);
        if (!symbol_is_defined(handle, name, version)) {
            char text[1024];
            snprintf(text, sizeof text, "%s%s%s", name, version ? "@" : "", version ? version : "");
            pyr_board_post(board, PYR_WIRE_UNDEFINED, 0, 0, text);
        }
    }
}

/* Why a load failed, as far as it decides what to try next. */
struct failure {
    bool undefined; /* an undefined symbol: it may load lazily */
    bool missing;   /* the target itself is not found: nothing can help */
};

static void *try_load(struct pyr_board *board, const char *target, int bits, struct failure *why) {
    void *handle = dlopen(target, bits & PYR_WIRE_LOAD_LAZY ? RTLD_LAZY : RTLD_NOW);
    const char *error = handle ? NULL : dlerror();
    size_t length = strlen(target);
    why->undefined = error && strstr(error, "undefined symbol");
    why->missing = error && strncmp(error, target, length) == 0 &&
                   starts_with(error + length, ": cannot open shared object file");
    pyr_board_post(board, PYR_WIRE_LOAD, bits, handle != NULL, error);
    return handle;
}

static struct link_map *last_object(void) {
    struct link_map *map = _r_debug.r_map;
    while (map->l_next) {
        map = map->l_next;
    }
    return map;
}

/* Opens `target` at once, or lazily where a symbol of it is undefined: what then loads can still be
 * asked. Any other failure would only be the same once more. */
static bool load(struct pyr_board *board, const char *target, int bits, struct failure *why) {
    const struct link_map *before = last_object();
    void *handle = try_load(board, target, bits, why);
    if (why->undefined) {
        handle = try_load(board, target, bits | PYR_WIRE_LOAD_LAZY, why);
        if (handle) {
            inquire_undefined(board, handle);
        }
    }
    if (handle) {
        inquire_objects(board, before->l_next);
    }
    return handle != NULL;
}

void pyr_inquire_load(struct pyr_board *board, const char *target, const char *stub) {
    pyr_board_post(board, PYR_WIRE_STARTED, 0, 0, NULL);
    struct failure why = {0};
    bool loaded = load(board, target, 0, &why);
    /* Only a target that failed may lack the driver, and a real one takes milliseconds to map. By
     * SONAME: `libcuda.so` is a development link that many machines lack. */
    if (!loaded && !why.missing && !dlopen("libcuda.so.1", RTLD_LAZY)) {
        pyr_board_post(board, PYR_WIRE_DRIVER, 0, PYR_WIRE_NOT_FOUND, dlerror());
        if (dlopen(stub, RTLD_NOW | RTLD_GLOBAL)) {
            load(board, target, PYR_WIRE_LOAD_STUB, &why);
        }
    }
    pyr_board_post(board, PYR_WIRE_FINISHED, board->full, 0, NULL);
}

static void inquire_symbol(struct pyr_board *board, void *handle, const char *name) {
    char text[PYR_WIRE_TEXT_MAX];
    const char *actual = owner_of(dlsym(RTLD_DEFAULT, name));
    const char *own = owner_of(dlsym(handle, name));
    int length = snprintf(text, sizeof text, "%s%c%s%c%s", name, '\0', actual, '\0', own);
    if (length > 0 && (size_t)length < sizeof text) {
        pyr_board_post_bytes(board, PYR_WIRE_SYMBOL, 0, 0, text, (size_t)length);
    }
}

void pyr_inquire_preload(struct pyr_board *board, const char *target) {
    pyr_board_post(board, PYR_WIRE_STARTED, 0, 0, NULL);
    /* RTLD_NOLOAD: asked whether it is there, never brought in by asking. */
    void *handle = dlopen(target, RTLD_LAZY | RTLD_NOLOAD);
    pyr_board_post(board, PYR_WIRE_LOAD, PYR_WIRE_LOAD_PRESENT, handle != NULL, NULL);
    inquire_objects(board, _r_debug.r_map);
    if (handle) {
        inquire_symbol(board, handle, "cudaMalloc");
        inquire_symbol(board, handle, "cudaFree");
        inquire_undefined(board, handle);
    }
    pyr_board_post(board, PYR_WIRE_FINISHED, board->full, 0, NULL);
}
