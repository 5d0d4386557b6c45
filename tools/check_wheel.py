"""Look into a built wheel: ``python tools/check_wheel.py DIRECTORY``.

The tests see the source tree; users get this.
"""

import argparse
import sys
import zipfile
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parent.parent / "src"


def faults(packed: set[str], source: Path = SOURCE) -> list[str]:
    """Return what is missing from the names in a wheel, and what does not belong there."""
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "keyshared").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    code = {name for name in packed if ".dist-info/" not in name and not _is_compiled(name, wanted)}
    licensed = any(name.endswith(".dist-info/licenses/LICENSE") for name in packed)
    return [
        *(f"missing: {name}" for name in sorted((wanted | {"keyshared/py.typed"}) - code)),
        *(f"does not belong there: {name}" for name in sorted(code - wanted)),
        *([] if licensed else ["missing: the licence"]),
    ]


def _is_compiled(name: str, wanted: set[str]) -> bool:
    """Whether it is a module of the source in its compiled form, or what all of those share."""
    stem, _, suffix = name.partition(".")
    return suffix.endswith(("so", "pyd")) and (f"{stem}.py" in wanted or stem == "keyshared/_compiled__mypyc")


def main(directory: Path) -> int:
    """Report on the only wheel in the directory."""
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        found = faults(set(archive.namelist()))
    for fault in found:
        print(f"{wheel.name}: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="with one wheel in it")
    sys.exit(main(parser.parse_args().directory))
