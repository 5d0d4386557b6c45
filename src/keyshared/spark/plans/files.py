"""Plans in files: TOML, and YAML where PyYAML is installed.

A file is read and checked on this machine, before any job starts.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from keyshared._checks import check_extra, check_several, check_text
from keyshared.errors import ArgumentError
from keyshared.simulate.group import Group
from keyshared.spark.plans.tables import plan_of

__all__ = ["load_plan", "load_plans"]

_NAME: Final = "name"
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_OLD_NUMBER: Final = re.compile(r"[-+]?0[0-7_]+$|.*:")  # of YAML 1.1: in base 8, and in base 60


class _File(NamedTuple):
    """What a file holds."""

    name: str
    plan: Group


def load_plan(path: str | PathLike[str]) -> Group:
    r"""Read a plan from a file.

    Args:
        path: A file on this machine that ends in ``.toml``, ``.yaml`` or ``.yml``. Its keys are the fields of
            `keyshared.simulate.Group`; see the guide on Spark for a whole one.

    Returns:
        The plan.

    Raises:
        ArgumentError: There is no such file, it cannot be read, a key in it is unknown, or a value can never work. The
            error names the file and the key.
        MissingExtraError: It is a YAML file, and PyYAML is not installed.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> file = Path(mkdtemp()) / "two.toml"
        >>> _ = file.write_text('''
        ... consumers = [{ name = "c", count = 2, limit = 4, service = "20 ms" }]
        ... changes = [{ kind = "crash", at_ms = "1 h 30 min", name = "c2" }]
        ... ''')
        >>> load_plan(file).changes
        (Crash(at_ms=5400000, name='c2'),)
    """
    return _read(path).plan


def load_plans(paths: Iterable[str | PathLike[str]]) -> dict[str, Group]:
    """Read several plans, for `what_if`.

    Args:
        paths: Files as in `load_plan`.

    Returns:
        The plans, each by the ``name`` that stands in its file, else by the name of the file without its ending; in the
        order of paths.

    Raises:
        ArgumentError: As `load_plan`; two plans have one name; or there is none.
        MissingExtraError: As `load_plan`.

    Example:
        >>> plans = load_plans(["today.toml", "split.yaml"])  # doctest: +SKIP
        >>> what_if(log, plans).report("plans.html")  # doctest: +SKIP
    """
    found: dict[str, Group] = {}
    for path in check_several("paths", paths, "paths"):
        name, plan = _read(path)
        if name in found:
            raise ArgumentError(f"{path}: name", name, 'be another one than in the files before: name = "..."')
        found[name] = plan
    if not found:
        raise ArgumentError("paths", paths, "name at least one file")
    return found


def _read(path: object) -> _File:
    if not isinstance(path, str | PathLike):
        raise ArgumentError("path", path, "be the path of a file")
    file = Path(path)
    parse = _PARSERS.get(file.suffix.lower())
    if parse is None:
        raise ArgumentError("plan", str(path), f"be a file that ends in {', '.join(_PARSERS)}")
    data = parse(file, _text_of(file))
    if not isinstance(data, Mapping):
        raise ArgumentError(str(path), data, "hold keys and values, such as a list of consumers")
    try:
        name = check_text(_NAME, data.get(_NAME, file.stem))
        return _File(name, plan_of({key: value for key, value in data.items() if key != _NAME}))
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error.parameter}", error.value, error.requirement) from error


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        around = [each.name for each in file.parent.iterdir()] if file.parent.is_dir() else []
        close = get_close_matches(file.name, around, n=1)
        meant = f"; did you mean {file.parent / close[0]}?" if close else ""
        raise ArgumentError("plan", str(file), f"be a file that exists{meant}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError("plan", str(file), f"be a file of UTF-8 text that can be read ({error})") from None


def _toml(file: Path, text: str) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError("plan", str(file), f"hold TOML that can be read: {error}") from None


def _yaml(file: Path, text: str) -> object:
    check_extra("yaml", "yaml")
    yaml: Any = import_module("yaml")  # only such a file needs the extra
    try:
        _refuse_odd(yaml, yaml.compose(text, Loader=yaml.SafeLoader), file)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ArgumentError("plan", str(file), f"hold YAML that can be read: {' '.join(str(error).split())}") from None


def _refuse_odd(yaml: Any, node: Any, file: Path) -> None:  # noqa: ANN401 - PyYAML has no types
    """Refuse what PyYAML would take for something else and say nothing."""
    nodes, done = [node], set()
    while nodes:
        node = nodes.pop()
        if id(node) in done:  # an anchor is one node at several places
            continue
        done.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _refuse_twice(yaml, node, file)
            nodes += [each for pair in node.value for each in pair]
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and _OLD_NUMBER.match(node.value):
            told = f"be a decimal number, or stand in quotes: in YAML {node.value} is {yaml.safe_load(node.value)}"
            raise ArgumentError(f"{file}: a number in line {node.start_mark.line + 1}", node.value, told)


def _refuse_twice(yaml: Any, node: Any, file: Path) -> None:  # noqa: ANN401 - as above
    """Refuse a key that stands twice in a mapping: the last one would be taken."""
    keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        line = node.start_mark.line + 1
        raise ArgumentError(f"{file}: a key", twice, f"stand once in the table that begins in line {line}")


_PARSERS: Final[dict[str, Callable[[Path, str], object]]] = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml}
