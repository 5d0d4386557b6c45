"""Walk the checklist of a release: ``python tools/release_check.py``; exits with 1 if a point is open.

What takes long is named at the end, to be run and looked at by a person.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LATER: Final = (
    "make nightly",
    "make test-cluster",
    "make test-kafka",
    "make matrix",
    "make sdist",
    "make bench ARGS=--check",
)

Point = Callable[[Path], str | None]
"""Returns what is missing, or None."""


def version_in(root: Path) -> str:
    """Return the version that the package names."""
    text = (root / "src" / "keyshared" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, flags=re.MULTILINE)
    return "" if found is None else found[1]


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.strip()


def numbered(root: Path) -> str | None:
    """The version is three numbers."""
    version = version_in(root)
    return None if re.fullmatch(r"\d+\.\d+\.\d+", version) else f"src/keyshared/__init__.py says {version!r}"


def not_released(root: Path) -> str | None:
    """Nothing has been released under that version."""
    tag = f"v{version_in(root)}"
    return f"there is a tag {tag}: raise the version" if _git(root, "tag", "--list", tag) else None


def committed(root: Path) -> str | None:
    """Everything is committed."""
    changed = _git(root, "status", "--porcelain")
    return f"not committed: {changed.splitlines()[0].strip()}" if changed else None


def in_the_changelog(root: Path) -> str | None:
    """The changelog has a section for it, with a date, and every fragment is in there."""
    left = [path.name for path in sorted((root / "changelog.d").glob("+*"))]
    if left:
        return f"{len(left)} fragments in changelog.d: towncrier build --version {version_in(root)}"
    text = (root / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(rf"^## {re.escape(version_in(root))} \((.*)\)$", text, flags=re.MULTILINE)
    if heading is None:
        return "CHANGELOG.md has no section for it"
    dated = re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading[1])
    return None if dated else f"CHANGELOG.md says {heading[1]!r} where the date of the release belongs"


def kept(root: Path) -> str | None:
    """What this minor version stores is kept for later ones to read."""
    minor = ".".join(version_in(root).split(".")[:2])
    folder = root / "tests" / "compatibility" / "kept" / minor
    return None if folder.is_dir() else f"nothing is kept of {minor}: python tools/keep_states.py {minor}"


def integrations_agree(root: Path) -> str | None:
    """Every integration has the version of the library, and asks for at least its minor version."""
    version = version_in(root)
    minor = ".".join(version.split(".")[:2])
    for path in sorted((root / "integrations").glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        if project["version"] != version:
            return f"{project['name']} is {project['version']}"
        if f"keyshared>={minor}" not in project["dependencies"]:
            return f"{project['name']} does not ask for keyshared>={minor}"
    return None


def papers(root: Path) -> str | None:
    """Licence, security and citation are there."""
    missing = [name for name in ("LICENSE", "SECURITY.md", "CITATION.cff") if not (root / name).is_file()]
    return f"missing: {', '.join(missing)}" if missing else None


POINTS: Final[tuple[Point, ...]] = (
    numbered,
    not_released,
    committed,
    in_the_changelog,
    kept,
    integrations_agree,
    papers,
)


def open_points(root: Path) -> dict[str, str]:
    """Return what is missing, by the point of the checklist."""
    answers = {str(point.__doc__): point(root) for point in POINTS}
    return {point: missing for point, missing in answers.items() if missing is not None}


def main(root: Path = ROOT) -> int:
    """Print every point, and what a person still has to do."""
    found = open_points(root)
    for point in POINTS:
        missing = found.get(str(point.__doc__))
        print(f"{'open' if missing else 'done':6}{point.__doc__}{f' {missing}' if missing else ''}")
    print("\nRun these, and look at what they say: " + ", ".join(LATER))
    if not found:
        print(f"Then: git tag v{version_in(root)} && git push --tags; the workflow `release` does the rest.")
    return 1 if found else 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.exit(main())
