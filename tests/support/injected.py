"""Checks a library while system calls fail; runs below sources/inject.c and prints what came out.

argv[1] is a JSON document, see tests/process/test_injection.py.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time

import pyresolve

BEGIN, END = 0x50594E4A, 0x50594E4B  # sources/inject.c
prctl = ctypes.CDLL(None).prctl


def checked(library: str, mode: str, timeout: float) -> tuple[str, str]:
    """Return the name of the verdict or of the error, and the sentence."""
    try:
        report = pyresolve.check(library, mode=mode, timeout=timeout)
    except pyresolve.PyresolveError as error:
        return type(error).__name__, str(error)
    except BaseException as error:  # noqa: BLE001  (it is the answer)
        return "raised", repr(error)
    return report.verdict.name, f"{report.status.name} {report.message}"


def probed(program: str, library: str, mode: str, timeout: float) -> tuple[str, str]:
    """Return the exit status of pyresolve-probe in words, and what it said."""
    command = [program, "check", "--mode", mode, "--timeout", str(timeout), library]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:  # it was not even started
        return "ProbeError", str(error)
    verdict = {0: "OK", 1: "FAIL", 3: "UNKNOWN"}.get(done.returncode, f"status {done.returncode}")
    if done.returncode == 1 and not done.stdout and done.stderr:
        verdict = "ProbeError"
    return verdict, (done.stdout + done.stderr).strip()


def main() -> None:
    """Try each call, error and number until the number is higher than the calls there are."""
    job = json.loads(sys.argv[1])
    library, mode, timeout, program = (job[k] for k in ("library", "mode", "timeout", "program"))

    def act() -> tuple[str, str]:
        if program:
            return probed(program, library, mode, timeout)
        return checked(library, mode, timeout)

    act()  # imports what a first check imports
    for depth, call, number, error in job["cases"]:
        for n in range(1, job["most"] + 1):
            fds = os.listdir("/proc/self/fd")
            prctl(BEGIN, depth, number, error, n)
            begun = time.monotonic()
            verdict, sentence = act()
            spent = time.monotonic() - begun
            left, failed = divmod(prctl(END), 1000)
            if not failed:
                break
            left += len(os.listdir("/proc/self/fd")) - len(fds)
            case = [depth, call, error, n]
            print(json.dumps([case, verdict, sentence, round(spent, 2), left]), flush=True)


main()
