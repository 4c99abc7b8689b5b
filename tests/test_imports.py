"""The package's imports lead in one direction, those for types and those in functions included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support import REPOSITORY

# Imports lead from a row to itself and to the rows before it.
LAYERS = (
    ("_document", "_names", "_imports"),
    ("_model",),
    ("_errors", "_environ", "_overrides"),
    ("_native",),
    ("_disk",),
    ("_process",),
    ("_check",),
    ("_pick",),
    ("_survey", "_audit"),
    ("health",),
    ("__init__",),
    ("bench", "ray"),
    ("cli",),
    ("__main__",),
)
PACKAGE = "pyresolve"


def modules(root: Path) -> dict[str, Path]:
    """Return the modules of the package in `root` by their dotted names, its own name left out."""
    found = {}
    for path in sorted(root.rglob("*.py*")):
        if path.suffix not in (".py", ".pyi"):
            continue
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name or "__init__"] = path
    return found


def imports(name: str, path: Path, known: set[str]) -> set[str]:
    """Return the modules of the package that one of them imports, wherever in its text."""
    base = [] if name == "__init__" else name.split(".")
    package = base if path.name == "__init__.py" else base[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {own(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            target = [PACKAGE, *above] if node.level else []
            target += [node.module] if node.module else []
            wholes = {own(".".join([*target, alias.name])) for alias in node.names}
            found |= {whole if whole in known else own(".".join(target)) for whole in wholes}
        elif isinstance(node, ast.Constant) and path.name == "__init__.py":
            found.add(".".join([*package, str(node.value)]))  # from its table of lazy imports
    return {item for item in found if item in known} - {name}


def own(whole: str) -> str:
    """Return the name of a module by its full name, empty for one of another package."""
    first, _, rest = whole.partition(".")
    return (rest or "__init__") if first == PACKAGE else ""


def graph(root: Path) -> dict[str, set[str]]:
    """Return what each module imports."""
    known = modules(root)
    return {name: imports(name, path, set(known)) for name, path in known.items()}


def circles(edges: dict[str, set[str]]) -> list[str]:
    """Return each circle of imports as a text, found from its first module on."""
    found, done = [], set()

    def follow(name: str, path: list[str]) -> None:
        if name in path:
            found.append(" -> ".join([*path[path.index(name) :], name]))
        elif name not in done:
            for other in sorted(edges[name]):
                follow(other, [*path, name])
            done.add(name)

    for name in sorted(edges):
        follow(name, [])
    return found


def layer(name: str) -> int:
    """Return the row of LAYERS that a module belongs to."""
    top = name.split(".")[0]
    return next(number for number, names in enumerate(LAYERS) if top in names)


def against_the_layers(edges: dict[str, set[str]]) -> list[str]:
    """Return the imports that lead to a later row."""
    return [
        f"{name} -> {other}"
        for name, others in edges.items()
        for other in sorted(others)
        if layer(other) > layer(name)
    ]


def test_no_circle():
    """No module imports one that imports it."""
    assert [] == circles(graph(REPOSITORY / "pyresolve"))


def test_layers():
    """What is below imports nothing from above."""
    edges = graph(REPOSITORY / "pyresolve")
    assert len(edges) > 50
    assert [] == against_the_layers(edges)


@pytest.mark.parametrize(
    "text",
    [
        "from .b import x\n",
        "from . import b\n",
        "if TYPE_CHECKING:\n    from .b import x\n",
        "def f():\n    from .b import x\n",
        "import pyresolve.b\n",
        "import pyresolve.b as b\n",
        "from pyresolve import b\n",
        "from pyresolve.b import x\n",
    ],
)
def test_circle_is_found(tmp_path, text):
    """A circle is found at run time, for types and in a function."""
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "b.py").write_text("from .c import y\n")
    (tmp_path / "c.py").write_text("from .a import f\n")
    assert ["a -> b -> c -> a"] == circles(graph(tmp_path))
    (tmp_path / "c.py").write_text("import a\n")
    assert [] == circles(graph(tmp_path))


@pytest.mark.parametrize(
    "text", ["import pyresolve\n", "from pyresolve import x\n", "from . import x\n"]
)
def test_names_of_the_package_are_its_own(tmp_path, text):
    """Who imports what the package has under a name of its own imports all that it imports."""
    (tmp_path / "__init__.py").write_text("HOME = {'x': 'a'}\n")
    (tmp_path / "a.py").write_text(text)
    assert ["__init__ -> a -> __init__"] == circles(graph(tmp_path))
    (tmp_path / "a.py").write_text("from pyresolve import a\nfrom . import a\n")
    assert [] == circles(graph(tmp_path))


def test_layer_is_held(tmp_path):
    """An import that leads upwards is found."""
    (tmp_path / "_disk").mkdir()
    (tmp_path / "_disk" / "elf.py").write_text("from .._pick import pick\n")
    (tmp_path / "_pick").mkdir()
    (tmp_path / "_pick" / "pick.py").write_text("from .._disk import elf\n")
    assert ["_disk.elf -> _pick.pick"] == against_the_layers(graph(tmp_path))


LATE = [
    "__init__.py",
    "_disk",
    "_process",
    "_check",
    "_pick",
    "_survey.py",
    "_audit.py",
    "health",
    "ray/__init__.py",
]


def interruptible(path: Path) -> list[str]:
    """Return the imports in functions that a fork in another thread could interrupt."""
    found = []

    def visit(node: ast.AST, function: bool) -> None:
        if function and isinstance(node, ast.Import | ast.ImportFrom):
            found.append(f"{path.name}:{node.lineno}")
        if isinstance(node, ast.With) and "importing" in ast.unparse(node.items[0]):
            return
        inside = function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(path.read_text()), function=False)
    return found


@pytest.mark.parametrize("part", LATE)
def test_late_imports(part):
    """What is imported when it is first used is not interrupted by a fork."""
    place = REPOSITORY / "pyresolve" / part
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    assert [] == [where for path in files for where in interruptible(path)]


def test_late_import_is_found(tmp_path):
    """One without the lock, and none that has it or stands at the top."""
    text = "import a\ndef f():\n    with importing:\n        import b\n    import c\n"
    (tmp_path / "x.py").write_text(text)
    assert ["x.py:5"] == interruptible(tmp_path / "x.py")
