# cffi knows no types: its Any stays in this file.
from typing import Any

ffi: Any
lib: Any
