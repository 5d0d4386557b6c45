"""Write docs/api.md, one line for each thing that a program may use, or check with --check that it still holds.

The sources are read, not imported: the page is the same on every Python, with and without the extras.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "api.md"
BY_PATH: Final = frozenset(
    [
        "keyshared.hashing.celeriant",
        "keyshared.hashing.pulsar",
        "keyshared.testing.dispatcher",
        "keyshared.testing.history",
        "keyshared.testing.machine",
        "keyshared.testing.recorders.kafka",
        "keyshared.testing.recorders.log",
        "keyshared.testing.recorders.redis_streams",
        "keyshared.testing.recorders.sqs",
        "keyshared.testing.find",
        "keyshared.testing.rows",
        "keyshared.testing.steps",
        "keyshared.testing.strategies",
    ]
)
"""Modules inside a package that are imported by their own path; of all others the package names what is public."""

HEAD: Final = """\
# The public API

One line for each thing that a program may import, call or read, so that a change of it shows in a diff. Written by
`tools/draw_api.py` from the sources; a test compares. The names of `keyshared` are defined in the module behind the
`=`. The docstring of a thing says what it does."""
_SILENT: Final = frozenset(
    ["__getattr__", "__hash__", "__init__", "__init_subclass__", "__post_init__", "__reduce__", "__repr__", "__str__"]
)
"""Methods that no program calls by their names, and that a class may have or not."""
_FIELDS: Final = frozenset(["NamedTuple", "_fields_in_a_tuple", "dataclass"])

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """Where a name is defined."""

    module: str
    node: ast.stmt


class Library:
    """The sources of the package, as trees.

    Args:
        folder: The package's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._trees: dict[str, ast.Module] = {}
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self._trees[name] = ast.parse(path.read_text("utf-8"))
        self._names = {name: dict(_bound(name, tree)) for name, tree in self._trees.items()}
        self._offers = {name: _offered(tree) for name, tree in self._trees.items()}
        self._modules = sorted(name for name in self._trees if self._is_public(name) and self._offers[name])

    def modules(self) -> list[str]:
        """Return the modules that a program imports from, sorted."""
        return self._modules

    def lines(self, module: str) -> list[str]:
        """Return the lines of one module, sorted."""
        found = {line for name in self._offers[module] for line in self._of(module, name)}
        return sorted(found, key=lambda line: line.replace(": class", "!"))  # a class stands above what it has

    def _is_public(self, module: str) -> bool:
        steps = module.split(".")
        if any(step.startswith("_") for step in steps):
            return False
        return len(steps) <= 2 or module in BY_PATH  # noqa: PLR2004 - keyshared.ring, keyshared.buckets

    def _find(self, module: str, name: str) -> Place | None:
        """Follow imports to the place where a name is defined; None if it is not the library's."""
        place = self._names.get(module, {}).get(name)
        if place is None or not isinstance(place.node, ast.ImportFrom):
            return place
        origin = next(alias.name for alias in place.node.names if (alias.asname or alias.name) == name)
        return self._find(place.node.module or "", origin)

    def _of(self, module: str, name: str) -> list[str]:
        place = self._find(module, name)
        if place is None:
            raise SystemExit(f"{module} offers {name}, which the sources do not define")
        home = self._home(place, name)
        if home != module:
            return [f"{module}.{name} = {home}.{name}"]
        return [f"{module}.{line}" for line in self._described(place, name)]

    def _home(self, place: Place, name: str) -> str:
        """Return the public module that a thing belongs to: its own, or the one that offers it."""
        if self._is_public(place.module) and name in self._offers[place.module]:
            return place.module
        package = ".".join(place.module.split(".")[:2])
        if self._is_public(package) and name in self._offers[package]:
            return package
        return next(one for one in self._offering(place, name) if one != "keyshared")

    def _described(self, place: Place, name: str) -> Iterator[str]:
        node = place.node
        if isinstance(node, ast.ClassDef):
            yield from self._class(place, node, name)
        elif isinstance(node, _Function):
            overloads = [one for one in self._trees[place.module].body if _is_overload(one, name)]
            yield from (name + _signature(one) for one in overloads or [node] if isinstance(one, _Function))
        else:
            yield name + _value(node)

    def _class(self, place: Place, node: ast.ClassDef, name: str) -> Iterator[str]:
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield f"{name}: class({bases})" if bases else f"{name}: class"
        if _has_fields(node):
            yield f"{name}({', '.join(self._fields(place, node))})"
        seen: set[str] = set()
        for one in self._lineage(place, node):
            members = dict.fromkeys(member for statement in one.body for member in _names_of(statement))
            for statement in one.body:
                for member in _names_of(statement):
                    if member not in seen:
                        yield from _member(name, member, statement, one)
            init = next((s for s in one.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)
            if init and "__init__" not in seen:
                yield name + _signature(init, bound=True).removesuffix(" -> None")
                yield from (f"{name}.{line}" for line in _attributes(init) if line.partition(":")[0] not in members)
            seen |= set(members)

    def _lineage(self, place: Place, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """Walk a class and those of its bases that have no lines of their own, because they are private."""
        yield node
        for found, base in self._bases(place, node):
            if not self._offering(found, base.name):
                yield from self._lineage(found, base)

    def _fields(self, place: Place, node: ast.ClassDef) -> Iterator[str]:
        """Walk what a tuple with names or a dataclass is made of, in the order of its arguments."""
        for found, base in self._bases(place, node):
            yield from self._fields(found, base)
        if _has_fields(node):
            if any("kw_only=True" in ast.unparse(mark) for mark in node.decorator_list):
                yield "*"
            yield from (_field(one) for one in node.body if _is_field(one))

    def _bases(self, place: Place, node: ast.ClassDef) -> Iterator[tuple[Place, ast.ClassDef]]:
        for base in node.bases:
            inner = base.value if isinstance(base, ast.Subscript) else base
            found = self._find(place.module, inner.id) if isinstance(inner, ast.Name) else None
            if found and isinstance(found.node, ast.ClassDef):
                yield found, found.node

    def _offering(self, place: Place, name: str) -> list[str]:
        return [one for one in self.modules() if name in self._offers[one] and self._find(one, name) == place]


def page(folder: Path) -> str:
    """Return the text of the page for a package's folder."""
    library = Library(folder)
    parts = (["", f"## {module}", "", "```text", *library.lines(module), "```"] for module in library.modules())
    return "\n".join([HEAD, *chain.from_iterable(parts), ""])


def _offered(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and "__all__" in _names_of(node):
            return list(ast.literal_eval(node.value or ast.List([])))
    return []


def _bound(module: str, tree: ast.Module) -> Iterator[tuple[str, Place]]:
    statements = [inner for node in tree.body for inner in (node.body if isinstance(node, ast.If) else [node])]
    for node in statements:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, Place(module, node)) for alias in node.names)
        else:
            yield from ((name, Place(module, node)) for name in _names_of(node))


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | _Function):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def _member(owner: str, name: str, node: ast.stmt, cls: ast.ClassDef) -> Iterator[str]:
    if name in _SILENT or (name.startswith("_") and not name.endswith("__")) or name == "__slots__":
        return
    if not isinstance(node, _Function):
        if not (_has_fields(cls) and _is_field(node)):
            yield f"{owner}.{name}{_value(node)}"
        return
    marks = {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
    if "property" in marks:
        yield f"{owner}.{name}: {ast.unparse(node.returns) if node.returns else 'object'} (property)"
    elif "overload" in marks or not any(_is_overload(one, name) for one in cls.body):
        kind = " (class method)" if "classmethod" in marks else " (static method)" if "staticmethod" in marks else ""
        yield f"{owner}.{name}{_signature(node, bound='staticmethod' not in marks)}{kind}"


def _has_fields(cls: ast.ClassDef) -> bool:
    marks = [ast.unparse(one).partition("(")[0] for one in (*cls.bases, *cls.decorator_list)]
    return not _FIELDS.isdisjoint(marks)


def _attributes(init: ast.FunctionDef) -> Iterator[str]:
    """Return what a constructor keeps under a public name, with its type where the parameter says it."""
    arguments = (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)
    types = {one.arg: ast.unparse(one.annotation) for one in arguments if one.annotation}
    for node in ast.walk(init):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            name = ast.unparse(target).removeprefix("self.")
            if ast.unparse(target) != f"self.{name}" or name.startswith("_") or not name.isidentifier():
                continue
            kept = (
                types.get(ast.unparse(node.value), "") if isinstance(node, ast.Assign) else ast.unparse(node.annotation)
            )
            yield f"{name}: {kept}" if kept else name


def _is_overload(node: ast.stmt, name: str) -> bool:
    return isinstance(node, _Function) and node.name == name and "overload" in map(ast.unparse, node.decorator_list)


def _signature(node: _Function, *, bound: bool = False) -> str:
    arguments = node.args
    if bound:
        first = arguments.posonlyargs or arguments.args
        hidden = first[0]
        arguments = ast.arguments(
            posonlyargs=[one for one in arguments.posonlyargs if one is not hidden],
            args=[one for one in arguments.args if one is not hidden],
            vararg=arguments.vararg,
            kwonlyargs=arguments.kwonlyargs,
            kw_defaults=arguments.kw_defaults,
            kwarg=arguments.kwarg,
            defaults=arguments.defaults,
        )
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(arguments)}){returns}"


def _is_field(node: ast.stmt) -> bool:
    if not isinstance(node, ast.AnnAssign) or "ClassVar" in ast.unparse(node.annotation):
        return False
    return not ast.unparse(node.target).startswith("_") and "init=False" not in ast.unparse(node)


def _field(node: ast.stmt) -> str:
    return ast.unparse(node).replace("\n", " ")


def _value(node: ast.stmt) -> str:
    """Return what a constant or an alias is; a value that is made with private names shows its kind alone."""
    if not isinstance(node, ast.AnnAssign | ast.Assign):
        raise TypeError(ast.unparse(node))
    kind = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
    shown = f": {kind}" if kind not in {"", "Final", "TypeAlias"} else ""
    value = node.value and ast.unparse(node.value)
    return f"{shown} = {value}" if value and not re.search(r"\b_", value) else shown


def main(arguments: list[str]) -> int:
    """Write the page; with --check only compare, and return 1 if it differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the page is out of date")
    check = parser.parse_args(arguments).check
    before = PAGE.read_text("utf-8") if PAGE.exists() else ""
    after = page(ROOT / "src" / "keyshared")
    if check and before != after:
        print("docs/api.md is not what the code says; run: python tools/draw_api.py")
        return 1
    if before != after:
        PAGE.write_text(after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
