"""Lay out the pages of the site in build/docs: ``python tools/stage_docs.py``; `make docs` does so, and builds it.

The pages of docs/ are written for people who read them in the repository. Here links that leave docs/ are turned into
links to a copy of what they name, and the reference is added: one page for each public package, from its docstrings.
"""

import argparse
import ast
import re
import shutil
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "src" / "keyshared"
PAPERS: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PLACE: Final = "build/docs"
FIRST_SCREEN: Final = "<!-- tools/stage_docs.py puts the first screen of the README here -->\n"

_LINK: Final = re.compile(r"\]\((?!https?:|#|<)([^)#\s]+)(#[^)\s]*)?\)")


def public_names(path: Path) -> list[str]:
    """Return what a module or package exports, without running it."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            return sorted(str(name) for name in ast.literal_eval(node.value))
    return []


def public_modules(package: Path) -> dict[str, Path]:
    """Return what a user may import from, by its full name: packages at any depth, and modules of the first."""
    found = {package.name: package / "__init__.py"}
    for path in sorted(package.rglob("__init__.py")):
        parts = path.parent.relative_to(package.parent).parts
        if len(parts) > 1 and not any(part.startswith("_") for part in parts):
            found[".".join(parts)] = path
    for path in sorted(package.glob("*.py")):
        if not path.name.startswith("_"):
            found[f"{package.name}.{path.stem}"] = path
    return {name: path for name, path in sorted(found.items()) if public_names(path)}


def reference_page(module: str, path: Path) -> str:
    """Return the page of a module: what it is about, and each of its names."""
    about = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    parts = [f"# {module}", about.split("\n\n")[0].replace("``", "`")]
    parts += [f"::: {module}.{name}" for name in public_names(path)]
    return "\n\n".join(parts) + "\n"


def _as_text(block: str) -> str:
    """Return a block of code for the site, which shows a diagram as it is written: browsers would fetch Mermaid."""
    return block.replace("```mermaid", "```text", 1)


class Site:
    """The pages of a site, and copies of what they link to."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root = root
        self.docs = root / "docs"
        self.place = place
        self.missing: list[str] = []

    def write(self) -> None:
        """Write everything anew."""
        shutil.rmtree(self.place, ignore_errors=True)
        for page in sorted(self.docs.rglob("*.md")):
            self._copy(page, self.place / page.relative_to(self.docs))
        for other in sorted([*self.docs.rglob("*.svg"), *self.docs.rglob("*.css")]):
            target = self.place / other.relative_to(self.docs)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(other, target)
        for name in PAPERS:
            self._copy(self.root / name, self.place / name.lower())
        self._show_first_screen()
        package = self.root / "src" / PACKAGE.name
        for module, path in public_modules(package).items():
            target = self.place / "reference" / f"{module}.md"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(reference_page(module, path), "utf-8")

    def _show_first_screen(self) -> None:
        """Put what the README says before its sections into the first page."""
        first = self.place / "index.md"
        readme = (self.place / "readme.md").read_text("utf-8").partition("\n")[2]
        first.write_text(
            first.read_text("utf-8").replace(FIRST_SCREEN, re.split("^## ", readme, flags=re.MULTILINE)[0]), "utf-8"
        )

    def _copy(self, page: Path, target: Path) -> None:
        def moved(link: re.Match[str]) -> str:
            return f"]({self._target(page, target, link[1])}{link[2] or ''})"

        target.parent.mkdir(parents=True, exist_ok=True)
        blocks = re.split(r"(^```.*?^```$)", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        text = "".join(_as_text(block) if block.startswith("```") else _LINK.sub(moved, block) for block in blocks)
        target.write_text(text, "utf-8")

    def _target(self, page: Path, target: Path, link: str) -> str:
        """Return a link from where a page stands in the site."""
        wanted = (page.parent / link).resolve()
        if not wanted.exists():
            self.missing.append(f"{page.relative_to(self.root)}: {link}")
            return link
        if wanted.is_relative_to(self.docs):
            place = wanted.relative_to(self.docs)
        elif wanted.parent == self.root and wanted.name in PAPERS:
            place = Path(wanted.name.lower())
        else:
            place = self._shown(wanted)
        return place.as_posix() if target.parent == self.place else f"../{place.as_posix()}"

    def _shown(self, path: Path) -> Path:
        """Return the page that shows a file or lists a folder."""
        name = path.relative_to(self.root)
        place = Path("files") / f"{name.as_posix().replace('/', '-')}.md"
        target = self.place / place
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                body = "\n".join(f"- `{each.name}`" for each in sorted(path.iterdir()) if each.name[0] not in "._")
            else:
                kind = {".py": "python", ".toml": "toml", ".json": "json"}.get(path.suffix, "text")
                body = f"````{kind}\n{path.read_text('utf-8')}````"
            target.write_text(f"# {name.as_posix()}\n\n{body}\n", "utf-8")
        return place


def main(root: Path = ROOT) -> int:
    """Write the pages, and say which links lead nowhere."""
    site = Site(root, root / PLACE)
    site.write()
    for link in site.missing:
        print(f"broken link in {link}", file=sys.stderr)
    return 1 if site.missing else 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.exit(main())
