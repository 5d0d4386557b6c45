"""Build the wheel that carries a compiled core: with KEYSHARED_COMPILE=1, by mypyc, from the same sources.

Which modules are compiled stands in pyproject.toml (``[tool.hatch.build.targets.wheel.hooks.custom]``): the unchecked
core. The public faces, which check arguments, stay interpreted. Without the variable the wheel is the pure one.

mypyc reads a copy of the sources in which each class may be subclassed by interpreted code, copied and pickled, as in
the pure build. That is written on empty lines, so tracebacks name the right lines.
"""

import ast
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT: Final = Path(__file__).resolve().parent
VARIABLE: Final = "KEYSHARED_COMPILE"

_OPTIONS: Final = ("--config-file=", "--ignore-missing-imports", "--follow-imports=silent", "--explicit-package-bases")
_NEVER_NATIVE: Final = frozenset({"Enum", "IntEnum", "NamedTuple", "Protocol", "StrEnum"})
_IMPORT: Final = "if TYPE_CHECKING: from mypy_extensions import mypyc_attr"
_NATIVE: Final = "@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)"


class CompiledWheel(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel, if that is asked for."""

    def dependencies(self) -> list[str]:
        """Return what has to be installed to build."""
        wanted: list[str] = self.config["requires"]
        return wanted if self._is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling which files belong to the wheel, and that it is of this platform."""
        if version == "editable" or not self._is_wanted():
            return
        self._folder = TemporaryDirectory()
        built = compile_core(self.config["modules"], Path(self._folder.name))
        files = {str(path): path.relative_to(built).as_posix() for path in built.rglob("*.*") if path.is_file()}
        build_data["force_include"] |= files
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # not asked
        """Remove what was compiled."""
        if version != "editable" and self._is_wanted():
            self._folder.cleanup()

    def _is_wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get(VARIABLE) == "1"


def check_compiler() -> None:
    """Stop with a plain sentence where nothing can compile C."""
    name = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if sys.platform != "win32" and shutil.which(name) is None:
        sys.exit(f"error: there is no C compiler {name!r}: install one, set CC, or build the pure wheel (make wheel)")


def compile_core(modules: Sequence[str], folder: Path) -> Path:
    """Compile modules of the package, given as files in it; return the folder with the extension modules."""
    from mypyc.build import mypycify  # noqa: PLC0415  # only a compiled build has these two
    from setuptools import Distribution  # noqa: PLC0415

    check_compiler()
    shutil.copytree(ROOT / "src", folder / "stage", ignore=shutil.ignore_patterns("__pycache__"))
    for name in modules:
        path = folder / "stage" / "keyshared" / name
        path.write_text(with_attributes(path.read_text("utf-8")), "utf-8")
    with chdir(folder / "stage"):
        extensions = mypycify(
            [*_OPTIONS, f"--cache-dir={os.devnull}", *(f"keyshared/{name}" for name in modules)],
            opt_level=os.environ.get("KEYSHARED_OPT_LEVEL", "3"),
            debug_level="0",
            target_dir=str(folder / "c"),
            group_name="keyshared._compiled",
        )
        command: Any = Distribution({"name": "keyshared", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(folder / "built"), str(folder / "o")
        command.ensure_finalized()
        command.run()
    return folder / "built"


def with_attributes(text: str) -> str:
    """Return a module each class of which says that it may be subclassed and copied, each line where it was."""
    lines, tree = text.split("\n"), ast.parse(text)
    end = tree.body[0].end_lineno or 0
    lines[end - 1] += "; from typing import TYPE_CHECKING"
    lines[end] = _IMPORT
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names = {part.id for base in node.bases for part in ast.walk(base) if isinstance(part, ast.Name)}
            if not names & _NEVER_NATIVE:
                lines[node.lineno - 2] = _NATIVE
    return "\n".join(lines)
