"""Judge files in a terminal: ``python -m keyshared.testing check FILE...``."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from keyshared.testing.claims import read_claims
from keyshared.testing.errors import GuaranteesError, HistoryFileError
from keyshared.testing.files import check_file
from keyshared.testing.guarantees import Guarantees

__all__ = ["main"]

_KEPT: Final = 0
_BROKEN: Final = 1
_BAD: Final = 2  # as argparse has it
_DIGITS: Final = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge each file by itself, and print what was judged, what was not and why, and what is broken.

    Args:
        arguments: As in a terminal; None: those of this process.

    Returns:
        1 if a file shows a violation; 2 if one could not be judged, whatever the others show; else 0.

    Raises:
        SystemExit: With 2: an option is wrong.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        guarantees = _claimed(options.claims, options.claim)
    except (GuaranteesError, OSError, UnicodeError) as error:
        parser.error(f"claims: {error}")
    worst = _KEPT
    for path in options.files:
        try:
            report = check_file(path, guarantees, most=options.most)
        except HistoryFileError as error:
            sys.stderr.write(f"{error}\n")
            worst = _BAD
        else:
            sys.stdout.write(f"{report}\n")
            worst = max(worst, _BROKEN if report.found else _KEPT)
    return worst


def _claimed(path: str | None, claims: Sequence[str]) -> Guarantees:
    written = "" if path is None else Path(path).read_text("utf-8")
    return read_claims("\n".join([written, *claims]))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m keyshared.testing", description="Prove a Key-Shared system.")
    check = parser.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "check",
        help="judge histories in files",
        description="Judge histories. Exits with 1 if a promise is broken, 2 if a file or an option is wrong, else 0.",
    )
    check.add_argument(
        "files", nargs="+", metavar="FILE", help="JSON Lines, or CSV if the name says .csv; either may be .gz"
    )
    check.add_argument("--claims", metavar="TOML", help="file with what the system claims, by the names of Guarantees")
    check.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one more line of it, such as per_key=8 or 'promises=[\"key-order\"]'",
    )
    check.add_argument(
        "--most", type=_count, default=20, metavar="N", help="violations shown of a file (default: %(default)s)"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise ArgumentTypeError(f"{text!r} is no int of 0 to 999999")
    return int(text)
