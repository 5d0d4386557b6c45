"""Judge files in a terminal: ``python -m keyshared.testing check FILE...``, or ``--producer FILE --consumer FILE``."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from keyshared.testing.claims import read_claims
from keyshared.testing.errors import GuaranteesError, HistoryFileError, MergeError
from keyshared.testing.files import FileReport, check_file
from keyshared.testing.guarantees import Guarantees
from keyshared.testing.logs import check_logs

__all__ = ["main"]

_KEPT: Final = 0
_BROKEN: Final = 1
_BAD: Final = 2  # as argparse has it
_DIGITS: Final = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge each file by itself, or the logs of several processes as one history, and print what comes of it.

    Printed is what was judged, what was not and why, what is broken, and which verdicts the order of the logs leaves
    open.

    Args:
        arguments: As in a terminal; None: those of this process.

    Returns:
        1 if a file shows a violation; 2 if one could not be judged, or the logs contradict each other, whatever the
        others show; else 0. What is open is no violation.

    Raises:
        SystemExit: With 2: an option is wrong.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # a name or a key may hold what its encoding cannot say
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        guarantees = _claimed(options.claims, options.claim)
    except (GuaranteesError, OSError, UnicodeError) as error:
        parser.error(f"claims: {error}")
    if not (options.files or options.producer or options.consumer):
        parser.error("there is no FILE, and no log of a --producer or --consumer")
    if options.clock_error_ms is not None and not (options.producer or options.consumer):
        parser.error("--clock-error-ms is for the logs of a --producer or --consumer; a FILE has one order already")
    worst = _KEPT
    for check in _checks(options, guarantees):
        try:
            report = check()
        except (HistoryFileError, MergeError) as error:
            sys.stderr.write(f"{error}\n")
            worst = _BAD
        else:
            sys.stdout.write(f"{report}\n")
            worst = max(worst, _BROKEN if report.found else _KEPT)
    return worst


def _checks(options: Namespace, guarantees: Guarantees) -> Iterator[Callable[[], FileReport]]:
    for path in options.files:
        yield partial(check_file, path, guarantees, most=options.most)
    if options.producer or options.consumer:
        error_ms = options.clock_error_ms
        yield partial(
            check_logs, options.producer, options.consumer, guarantees, clock_error_ms=error_ms, most=options.most
        )


def _claimed(path: str | None, claims: Sequence[str]) -> Guarantees:
    written = "" if path is None else Path(path).read_text("utf-8-sig")
    return read_claims("\n".join([written, *claims]))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m keyshared.testing", description="Prove a Key-Shared system.")
    check = parser.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "check",
        help="judge histories in files",
        description="Judge histories. Exits with 1 if a promise is broken; with 2 if a file or an option is wrong, or "
        "logs contradict each other; else with 0, also if a verdict is open.",
    )
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
        help="how wrong the times of two such logs may be against each other (default: times order nothing)",
    )
    check.add_argument("--claims", metavar="TOML", help="file with what the system claims, by the names of Guarantees")
    check.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one more line of it, such as per_key=8, 'per_key=\"any\"' or 'promises=[\"key-order\"]'",
    )
    check.add_argument(
        "--most", type=_count, default=20, metavar="N", help="violations shown of a file (default: %(default)s)"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise ArgumentTypeError(f"{text!r} is no int of 0 to 999999")
    return int(text)
