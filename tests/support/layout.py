"""A scratch site-packages directory, laid out like the real one."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import venv
from pathlib import Path

from support.compile import SOURCES, built, hollow, workshop
from support.wheels import CUDART_VERSIONS, TMS, cudart_wheel, unpack, wheel

PRELOAD_STEM = "torch_memory_saver_hook_mode_preload"

# By CUDA major: what torch says of itself.
TORCHES = {12: ("12.8", "2.9.1+cu128"), 13: ("13.0", "2.9.1+cu130")}

_TORCH_VERSION_PY = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = {version!r}
debug = False
cuda: Optional[str] = {cuda!r}
git_version = '0123456789abcdef0123456789abcdef01234567'
hip: Optional[str] = {hip!r}
xpu: Optional[str] = {xpu!r}
"""


def cudart_soname(major: int) -> str:
    """Return the SONAME of a CUDA runtime; up to CUDA 11 it had a minor."""
    return f"libcudart.so.{major}" + (".0" if major < 12 else "")


@functools.cache
def fake_cudart(major: int, minor: int = 0) -> Path:
    """Return a stand-in for a libcudart, with the SONAME and the symbol versions of a real one."""
    soname = cudart_soname(major)
    script = workshop() / f"{soname}.map"
    script.write_text(f"{soname} {{ global: *; }};\n")
    return built(
        SOURCES / "cudart.c",
        soname,
        f"-DVERSION={major * 1000 + minor * 10}",
        f"-Wl,-soname,{soname}",
        f"-Wl,--version-script={script}",
    )


class Site:
    """A directory of installed packages, and the interpreter it belongs to."""

    def __init__(self, root: Path, python: Path = Path(sys.executable)) -> None:
        self.root = root
        self.python = python
        root.mkdir(parents=True, exist_ok=True)

    @classmethod
    def in_venv(cls, directory: Path) -> Site:
        """Create a virtual environment and return its site-packages."""
        venv.create(directory, symlinks=True)
        lib = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return cls(directory / "lib" / lib / "site-packages", directory / "bin" / "python")

    def __fspath__(self) -> str:
        return os.fspath(self.root)

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def hook(self, suffix: str = "") -> Path:
        """Return the path of the preload hook with this suffix, such as ``_cu13``."""
        return self.root / f"{PRELOAD_STEM}{suffix}.abi3.so"

    def cudart_directory(self, major: int) -> Path:
        """Return where the wheels of this CUDA major keep libcudart."""
        return self.root / "nvidia" / (f"cu{major}" if major > 12 else "cuda_runtime") / "lib"

    def tms(self, version: str = "0.0.10") -> Site:
        """Install the real torch_memory_saver."""
        unpack(wheel(TMS, version), self.root)
        return self

    def cudart(self, which: int | str) -> Path:
        """Install a real CUDA runtime by major or exact version; return its directory."""
        version = CUDART_VERSIONS[which] if isinstance(which, int) else which
        unpack(cudart_wheel(version), self.root)
        return self.cudart_directory(int(version.split(".")[0]))

    def fake_cudart(self, major: int, minor: int = 0) -> Path:
        """Install a stand-in CUDA runtime, for a major without a wheel; return its directory."""
        directory = self.cudart_directory(major)
        directory.mkdir(parents=True, exist_ok=True)
        library = shutil.copy(fake_cudart(major, minor), directory)
        self._dist_info("nvidia-cuda-runtime", f"{major}.{minor}.0", Path(library))
        return directory

    def fake_hook(self, major: int, name: str | None = None) -> Path:
        """Install a preload hook for any CUDA major, linked like the real ones; return its path."""
        path = self.root / name if name else self.hook(f"_cu{major}")
        hook = built(SOURCES / "hook.c", "hook.so", hollow("libcuda.so.1"), fake_cudart(major))
        return Path(shutil.copy(hook, path))

    def package(self, name: str, version: str) -> Site:
        """Install a package whose import is a failure of the test."""
        init = self.root / name / "__init__.py"
        init.parent.mkdir(parents=True, exist_ok=True)
        init.write_text(f"raise AssertionError('{name} must not be imported')\n")
        self._dist_info(name, version, init)
        return self

    def torch(
        self,
        cuda: str | None = "13.0",
        version: str = "2.9.1+cu130",
        *,
        hip: str | None = None,
        xpu: str | None = None,
        native: bool = True,
        rpath: bool = True,
        old_dtags: bool = True,
    ) -> Site:
        """Install a torch that must not be imported.

        ``native`` adds libc10.so and, where torch is built for CUDA, a libc10_cuda.so that finds
        the nvidia packages, if ``rpath``, and libc10.so through a DT_RPATH, or a DT_RUNPATH without
        ``old_dtags``.
        """
        self.package("torch", version)
        text = _TORCH_VERSION_PY.format(version=version, cuda=cuda, hip=hip, xpu=xpu)
        (self.root / "torch" / "version.py").write_text(text)
        if native:
            lib = self.root / "torch" / "lib"
            lib.mkdir(exist_ok=True)
            c10 = built(SOURCES / "c10.c", "libc10.so", "-Wl,-soname,libc10.so")
            shutil.copy(c10, lib)
            if cuda:
                major = int(cuda.split(".")[0])
                flags = _rpath(major if rpath else None, old_dtags=old_dtags)
                name = "libc10_cuda.so"
                needed = fake_cudart(major), c10
                soname = f"-Wl,-soname,{name}"
                shutil.copy(built(SOURCES / "c10_cuda.c", name, *needed, soname, *flags), lib)
        return self

    def cuda(self, major: int, tms: str = "0.0.10") -> Site:
        """Install the hook, and a torch and a runtime of this CUDA major."""
        self.tms(tms).torch(*TORCHES[major]).cudart(major)
        return self

    def only(self, pattern: str) -> Site:
        """Remove every hook of torch_memory_saver whose file name does not match."""
        for file in self.root.glob(f"{TMS}_hook_*.so"):
            if not file.match(pattern):
                file.unlink()
        return self

    def remove(self, pattern: str) -> Site:
        """Remove the files and directories that match, relative to the site; at least one."""
        found = list(self.root.glob(pattern))
        assert found, f"nothing in {self.root} matches {pattern}"
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return self

    def rename(self, old: str, new: str) -> Path:
        """Rename a file of the site; return its new path."""
        return (self.root / old).rename(self.root / new)

    def _dist_info(self, name: str, version: str, file: Path) -> None:
        info = self.root / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        paths = [file, info / "METADATA", info / "RECORD"]
        record = "".join(f"{path.relative_to(self.root)},,\n" for path in paths)
        (info / "RECORD").write_text(record)


def _rpath(major: int | None, *, old_dtags: bool) -> tuple[str, ...]:
    packages = (f"cu{major}", "cuda_runtime") if major else ()
    places = [f"$ORIGIN/../../nvidia/{name}/lib" for name in packages]
    dtags = "disable" if old_dtags else "enable"
    return f"-Wl,--{dtags}-new-dtags", f"-Wl,-rpath,{':'.join([*places, '$ORIGIN'])}"
