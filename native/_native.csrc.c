#include "elf.h"
#include "probe.h"
#include "wire.h"
