#include "elf.h"
#include "probe.h"
#include "scope.h"
#include "wire.h"
