"""Takes the place of Ray's worker script, and notes who runs it, in which environment.

Any interpreter may run it: it imports nothing of ours.
"""

import importlib.util
import json
import sys

# As it was given, not as Python made it. Not pathlib: its import takes longer than all of this.
with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
    text = file.read().decode("utf-8", "surrogateescape")
pairs = [pair.partition("=") for pair in text.split("\0") if pair]
with open(sys.argv[1], "w") as file:  # noqa: PTH123
    has_ray = importlib.util.find_spec("ray") is not None
    json.dump([sys.executable, has_ray, {name: value for name, _, value in pairs}], file)
