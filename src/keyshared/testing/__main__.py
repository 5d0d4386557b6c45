"""The command: ``python -m keyshared.testing try DRIVER.py``, or ``check HISTORY...``."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from keyshared.testing.claims import USUAL, Claims, Promise, read_claims
from keyshared.testing.driver import AsyncDriver, Driver
from keyshared.testing.errors import ClaimsError, HistoryFileError, MergeError
from keyshared.testing.files import FileReport, check_file, check_logs
from keyshared.testing.subject import Subject
from keyshared.testing.survey import survey

__all__ = ["main"]

_KEPT: Final = 0
_BROKEN: Final = 1
_BAD: Final = 2  # as argparse has it
_DIGITS: Final = 6
_UNCLAIMED: Final = Claims(promises=USUAL | {Promise.SAFE_CURSOR, Promise.FENCE})  # what `try` judges of a bare driver


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a driver, or judge histories in files, and print a table of verdicts.

    Args:
        arguments: As in a terminal; None: those of this process.

    Returns:
        1 if a promise is broken; 2 if a file could not be judged, or logs contradict each other; else 0.

    Raises:
        SystemExit: With 2: an option is wrong.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # a name or a key may hold what its encoding cannot say
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser()
    options = parser.parse_args(arguments)
    return _try(options, parser) if options.command == "try" else _check(options, parser)


def _try(options: Namespace, parser: ArgumentParser) -> int:
    path, _, name = options.driver.partition("::")
    try:
        subject = _subject_of(_load(Path(path)), name)
    except (OSError, ImportError, LookupError) as error:
        parser.error(f"{path}: {error}")
    result = survey(subject, options.seconds, lambda line: sys.stdout.write(f"{line}\n"))
    sys.stdout.write(f"\n{result}\n")
    return _BROKEN if result.findings else _KEPT


def _load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise LookupError("there is no such Python file")
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # so that it finds its neighbours
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _subject_of(module: ModuleType, name: str) -> Any:  # noqa: ANN401  # a class of a machine or a driver
    """Return the machine, or else the driver, that a module defines; or the one of a name."""
    own = {key: each for key, each in vars(module).items() if isclass(each) and each.__module__ == module.__name__}
    if name:
        if name not in own:
            raise LookupError(f"it defines no class {name}")
        return own[name]
    machines = [each for each in own.values() if issubclass(each, Subject) and hasattr(each, "driver_class")]
    drivers = [each for each in own.values() if issubclass(each, Driver | AsyncDriver)]
    bases = {base for each in drivers for base in each.__mro__[1:]}
    found: list[type[Any]] = [*machines] or [each for each in drivers if each not in bases]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise LookupError(f"it must define one machine, or one driver; it defines {names}; name one by ::NAME")
    return found[0]


def _check(options: Namespace, parser: ArgumentParser) -> int:
    try:
        claims = _claimed(options.claims, options.claim)
    except (ClaimsError, OSError, UnicodeError) as error:
        parser.error(f"claims: {error}")
    if not (options.files or options.producer or options.consumer):
        parser.error("there is no FILE, and no log of a --producer or --consumer")
    if options.clock_error_ms is not None and not (options.producer or options.consumer):
        parser.error("--clock-error-ms is for the logs of a --producer or --consumer; a FILE has one order already")
    worst = _KEPT
    for check in _checks(options, claims):
        try:
            report = check()
        except (HistoryFileError, MergeError) as error:
            sys.stderr.write(f"{error}\n")
            worst = _BAD
        else:
            sys.stdout.write(f"{report}\n")
            worst = max(worst, _BROKEN if report.found else _KEPT)
    return worst


def _checks(options: Namespace, claims: Claims) -> Iterator[Callable[[], FileReport]]:
    for path in options.files:
        yield partial(check_file, path, claims)
    if options.producer or options.consumer:
        error_ms = options.clock_error_ms
        yield partial(check_logs, options.producer, options.consumer, claims, clock_error_ms=error_ms)


def _claimed(path: str | None, claims: Sequence[str]) -> Claims:
    if path is None and not claims:
        return _UNCLAIMED
    written = "" if path is None else Path(path).read_text("utf-8-sig")
    return read_claims("\n".join([written, *claims]))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m keyshared.testing", description="Prove a Key-Shared system.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    attempt = commands.add_parser(
        "try",
        help="try to break a system through its driver",
        description="Try a system in stages. Exits with 1 if a promise is broken or the system raises; else with 0.",
    )
    attempt.add_argument(
        "driver", metavar="DRIVER.py", help="file that defines a machine, or a driver; DRIVER.py::NAME if several"
    )
    attempt.add_argument(
        "--seconds", type=float, default=60, metavar="N", help="for how long to try (default: %(default)s)"
    )
    check = commands.add_parser(
        "check",
        help="judge histories in files",
        description="Judge histories. Exits with 1 if a promise is broken; with 2 if a file or an option is wrong, or "
        "logs contradict each other; else with 0.",
    )
    _add_check(check)
    return parser


def _add_check(check: ArgumentParser) -> None:
    check.add_argument(
        "files", nargs="*", metavar="FILE", help="JSON Lines, or CSV if the name says .csv; either may be .gz"
    )
    for of, tells in (("producer", "what was published"), ("consumer", "the rest")):
        check.add_argument(
            f"--{of}",
            action="append",
            default=[],
            metavar="FILE",
            help=f"log of one process that tells {tells}; all such logs are merged into one history",
        )
    check.add_argument(
        "--clock-error-ms",
        type=_count,
        metavar="MS",
        help="how wrong the times of two such logs may be against each other; needed for several consumers",
    )
    check.add_argument(
        "--claims",
        metavar="TOML",
        help="file with the claims of the system, by the names of Claims (default: the usual, safe-cursor and fence)",
    )
    check.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one more line of it, such as per_key=8, 'per_key=\"any\"' or 'promises=[\"key-order\"]'",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise ArgumentTypeError(f"{text!r} is no int of 0 to 999999")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
