"""What the documents import is public: a module without an underscore offers it in ``__all__``."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]
IMPORTED = {
    (module, name.partition(" as ")[0])
    for path in DOCUMENTS
    for module, names in re.findall(
        r"^ *from (keyshared(?:\.\w+)*) import \(?([\w, \n]+?)(?:\)|$)", path.read_text("utf-8"), flags=re.MULTILINE
    )
    for name in re.findall(r"\w+(?: as \w+)?", names)
}


def test_the_documents_import_something() -> None:
    assert ("keyshared", "KeySharedDispatcher") in IMPORTED
    assert len(IMPORTED) > 100


@pytest.mark.parametrize("module", sorted({module for module, _ in IMPORTED} - {"keyshared.spark"}))
def test_a_document_imports_only_public_names(module: str) -> None:
    assert not any(part.startswith("_") for part in module.split("."))
    names = {name for imported, name in IMPORTED if imported == module}
    for name in names - set(importlib.import_module(module).__all__):
        importlib.import_module(f"{module}.{name}")
