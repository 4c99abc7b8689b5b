#include "child.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "loader_text.h"

#define DRIVER_SONAME "libcuda.so.1"

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

/* Asks a mapped library for its version. Neither function initialises CUDA. */
static void report_version(struct pyr_records *records, enum pyr_wire_kind kind, const char *path,
                           const char *name) {
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    /* ISO C has no conversion from an object pointer to a function; POSIX promises this one. */
    union {
        void *object;
        int (*function)(int *);
    } ask = {.object = handle ? dlsym(handle, name) : NULL};
    int version = 0;
    int64_t answer = ask.object ? ask.function(&version) : PYR_WIRE_NO_FUNCTION;
    pyr_records_add(records, kind, version, answer, path);
}

/* Reports every mapped object from `first` on, and asks CUDA's for their versions. */
static void report_objects(struct pyr_records *records, const struct link_map *first) {
    for (const struct link_map *map = first; map; map = map->l_next) {
        if (map->l_name[0] != '\0') {
            pyr_records_add(records, PYR_WIRE_OBJECT, 0, 0, map->l_name);
        }
    }
    for (const struct link_map *map = first; map; map = map->l_next) {
        if (starts_with(base_name(map->l_name), "libcudart.so")) {
            report_version(records, PYR_WIRE_RUNTIME, map->l_name, "cudaRuntimeGetVersion");
        } else if (starts_with(base_name(map->l_name), "libcuda.so")) {
            report_version(records, PYR_WIRE_DRIVER, map->l_name, "cuDriverGetVersion");
        }
    }
}

struct dynamic {
    const char *strings;
    const char *soname;
    const sym_t *symbols;
    const half_t *versions;
    const verneed_t *needs;
    size_t needs_count;
    const rela_t *lazy; /* what is bound at the first call */
    size_t lazy_size;
};

static struct dynamic dynamic_read(const struct link_map *map) {
    struct dynamic found = {0};
    const dyn_t *soname = NULL;
    for (const dyn_t *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        /* glibc has relocated these pointers in place, except where the section is read-only. */
        ElfW(Addr) address = entry->d_un.d_ptr;
        const void *pointer =
            (const void *)(address < map->l_addr ? address + map->l_addr : address);
        switch (entry->d_tag) {
        case DT_STRTAB:
            found.strings = pointer;
            break;
        case DT_SONAME:
            soname = entry;
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
    found.soname = soname && found.strings ? found.strings + soname->d_un.d_val : NULL;
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

/* The loader takes a definition that has no version for any version, with a warning; dlvsym does
 * not (do_lookup_x in elf/dl-lookup.c of glibc). */
static bool is_unversioned(void *address) {
    Dl_info info;
    union {
        void *pointer;
        const sym_t *symbol;
        const struct link_map *map;
    } entry = {NULL}, owner = {NULL};
    if (!address || !dladdr1(address, &info, &entry.pointer, RTLD_DL_SYMENT) || !entry.symbol ||
        !dladdr1(address, &info, &owner.pointer, RTLD_DL_LINKMAP) || !owner.map) {
        return false;
    }
    struct dynamic dynamic = dynamic_read(owner.map);
    return !dynamic.versions || dynamic.versions[entry.symbol - dynamic.symbols] <= VER_NDX_GLOBAL;
}

static bool symbol_is_defined(void *handle, const char *name, const char *version) {
    void *global = dlsym(RTLD_DEFAULT, name), *local = dlsym(handle, name);
    if (!version) {
        return global || local;
    }
    return dlvsym(RTLD_DEFAULT, name, version) || dlvsym(handle, name, version) ||
           is_unversioned(global) || is_unversioned(local);
}

/* dlerror names one undefined symbol; this reports all that `map` uses. Only symbols that are bound
 * at their first call are looked up: the loader found all others, or the object would not be
 * mapped. `handle` is the library that brought the object in, whose scope counts for it. */
static void report_undefined(struct pyr_records *records, void *handle,
                             const struct link_map *map) {
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
            char text[PYR_WIRE_TEXT_MAX];
            int length = snprintf(text, sizeof text, "%s%s%s%c%s", name, version ? "@" : "",
                                  version ? version : "", '\0', map->l_name);
            bool fits = length > 0 && (size_t)length < sizeof text;
            pyr_records_add_bytes(records, PYR_WIRE_UNDEFINED, 0, 0, text,
                                  fits ? (size_t)length : strlen(text));
        }
    }
}

static bool needs(const struct link_map *user, const struct link_map *other) {
    const char *strings = dynamic_read(user).strings, *name = dynamic_read(other).soname;
    for (const dyn_t *entry = user->l_ld; strings && entry->d_tag != DT_NULL; entry++) {
        const char *needed = strings + entry->d_un.d_val;
        if (entry->d_tag == DT_NEEDED &&
            (strcmp(needed, other->l_name) == 0 || (name && strcmp(needed, name) == 0) ||
             strcmp(needed, base_name(other->l_name)) == 0)) {
            return true;
        }
    }
    return false;
}

/* The target and all that it needs, directly or not. */
static void report_all_undefined(struct pyr_records *records, void *handle) {
    enum {
        OBJECTS_MAX = 1024
    };
    const struct link_map *found[OBJECTS_MAX];
    struct link_map *target = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &target) != 0) {
        return;
    }
    size_t count = 0;
    found[count++] = target;
    for (size_t i = 0; i < count; i++) {
        report_undefined(records, handle, found[i]);
        for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
            bool known = map->l_name[0] == '\0' || count == OBJECTS_MAX;
            for (size_t j = 0; j < count && !known; j++) {
                known = found[j] == map;
            }
            if (!known && needs(found[i], map)) {
                found[count++] = map;
            }
        }
    }
}

static struct pyr_loader_text said(const char *error) {
    return pyr_loader_read_error(pyr_text_of(error ? error : ""));
}

/* What decides what is tried after a load that failed. */
struct failure {
    bool undefined; /* a symbol is undefined: the library may load lazily */
    bool lacking;   /* that, or a library that it needs is not found: the stub driver may help */
};

static void *try_load(struct pyr_records *records, const char *target, int bits,
                      struct failure *why) {
    void *handle = dlopen(target, bits & PYR_WIRE_LOAD_LAZY ? RTLD_LAZY : RTLD_NOW);
    const char *error = handle ? NULL : dlerror();
    struct pyr_loader_text text = said(error);
    why->undefined = text.says == PYR_SAYS_UNDEFINED;
    bool is_path = memchr(text.file.at, '/', text.file.length) != NULL;
    why->lacking =
        why->undefined ||
        ((text.says == PYR_SAYS_NOT_FOUND || (text.says == PYR_SAYS_BAD_FILE && !is_path)) &&
         !pyr_loader_finds_no(&text, target));
    pyr_records_add(records, PYR_WIRE_LOAD, bits, handle != NULL, error);
    return handle;
}

static struct link_map *last_object(void) {
    struct link_map *map = _r_debug.r_map;
    while (map->l_next) {
        map = map->l_next;
    }
    return map;
}

/* As a program does: the interpreter's symbols are global, an import is local. */
static bool load_before(struct pyr_records *records, const struct pyr_scene *scene, int bits) {
    bool loaded = !*scene->python || dlopen(scene->python, RTLD_NOW | RTLD_GLOBAL);
    for (char *const *library = scene->before; loaded && *library; library++) {
        loaded = dlopen(*library, RTLD_NOW);
    }
    if (!loaded) {
        pyr_records_add(records, PYR_WIRE_LOAD, bits, 0, dlerror());
    }
    return loaded;
}

/* Opens `target` with RTLD_NOW. If a symbol is undefined it is opened lazily, so that all that is
 * undefined can be listed. After any other failure a second attempt would fail the same way. */
static bool load(struct pyr_records *records, const char *target, const struct pyr_scene *scene,
                 int bits, struct failure *why) {
    const struct link_map *before = last_object();
    *why = (struct failure){0};
    if (!load_before(records, scene, bits)) {
        return false;
    }
    void *handle = try_load(records, target, bits, why);
    if (why->undefined) {
        handle = try_load(records, target, bits | PYR_WIRE_LOAD_LAZY, why);
        if (handle) {
            report_all_undefined(records, handle);
        }
    }
    if (handle) {
        report_objects(records, before->l_next);
    }
    return handle != NULL;
}

void pyr_child_load(struct pyr_records *records, const char *target,
                    const struct pyr_scene *scene) {
    pyr_records_add(records, PYR_WIRE_STARTED, 0, 0, NULL);
    struct failure why;
    bool loaded = load(records, target, scene, 0, &why);
    /* A target that loads does not lack the driver, and mapping a real one takes milliseconds. By
     * SONAME: `libcuda.so` is a development link that many machines lack. */
    if (!loaded && why.lacking && !dlopen(DRIVER_SONAME, RTLD_LAZY)) {
        const char *error = dlerror();
        struct pyr_loader_text text = said(error);
        /* The stub takes the place of an absent driver only: a broken one is the answer. */
        bool absent = pyr_loader_finds_no(&text, DRIVER_SONAME);
        pyr_records_add(records, PYR_WIRE_DRIVER, 0, absent ? PYR_WIRE_NOT_FOUND : PYR_WIRE_BROKEN,
                        error);
        if (absent && dlopen(scene->stub, RTLD_NOW | RTLD_GLOBAL)) {
            load(records, target, scene, PYR_WIRE_LOAD_STUB, &why);
        }
    }
    pyr_records_add(records, PYR_WIRE_FINISHED, records->full, 0, NULL);
}

static void report_symbol(struct pyr_records *records, void *handle, const char *name) {
    char text[PYR_WIRE_TEXT_MAX];
    const char *actual = owner_of(dlsym(RTLD_DEFAULT, name));
    const char *own = owner_of(dlsym(handle, name));
    int length = snprintf(text, sizeof text, "%s%c%s%c%s", name, '\0', actual, '\0', own);
    if (length > 0 && (size_t)length < sizeof text) {
        pyr_records_add_bytes(records, PYR_WIRE_SYMBOL, 0, 0, text, (size_t)length);
    }
}

static void load_next(struct pyr_records *records, const char *next) {
    pyr_records_add(records, PYR_WIRE_NEXT, 0, PYR_WIRE_NEXT_OPENED, next);
    if (dlopen(next, RTLD_NOW)) {
        pyr_records_add(records, PYR_WIRE_NEXT, 0, PYR_WIRE_NEXT_LOADED, next);
    } else {
        pyr_records_add(records, PYR_WIRE_NEXT, 0, PYR_WIRE_NEXT_FAILED, dlerror());
    }
}

void pyr_child_preload(struct pyr_records *records, const char *target, const char *next) {
    pyr_records_add(records, PYR_WIRE_STARTED, 0, 0, NULL);
    /* RTLD_NOLOAD tells whether it is mapped and never maps it. */
    void *handle = dlopen(target, RTLD_LAZY | RTLD_NOLOAD);
    pyr_records_add(records, PYR_WIRE_LOAD, PYR_WIRE_LOAD_PRESENT, handle != NULL, NULL);
    report_objects(records, _r_debug.r_map);
    if (handle) {
        report_symbol(records, handle, "cudaMalloc");
        report_symbol(records, handle, "cudaFree");
        report_all_undefined(records, handle);
    }
    if (*next) {
        load_next(records, next);
    }
    pyr_records_add(records, PYR_WIRE_FINISHED, records->full, 0, NULL);
}
