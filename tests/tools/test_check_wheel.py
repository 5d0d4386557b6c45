import zipfile
from pathlib import Path

import pytest

from tools import check_wheel

LICENCE = "keyshared-1.dist-info/licenses/LICENSE"
GOOD = {"keyshared/__init__.py", "keyshared/py.typed", LICENCE}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "keyshared"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__" / "x.pyc").touch()
    (package / "__init__.py").touch()
    (package / "py.typed").touch()
    return package.parent


def test_a_whole_wheel_has_no_faults(source: Path) -> None:
    assert [] == check_wheel.faults(GOOD, source)


def test_a_module_of_the_source_may_be_there_in_its_compiled_form_too(source: Path) -> None:
    compiled = {"keyshared/__init__.cpython-311-x86_64-linux-gnu.so", "keyshared/_compiled__mypyc.cp311-win_amd64.pyd"}

    assert [] == check_wheel.faults(GOOD | compiled, source)


@pytest.mark.parametrize(
    ("packed", "fault"),
    [
        (GOOD - {"keyshared/__init__.py"}, "missing: keyshared/__init__.py"),
        (GOOD - {"keyshared/py.typed"}, "missing: keyshared/py.typed"),
        (GOOD - {LICENCE}, "missing: the licence"),
        (GOOD | {"keyshared/y.cpython-311.so"}, "does not belong there: keyshared/y.cpython-311.so"),
        (GOOD | {"tests/test_x.py"}, "does not belong there: tests/test_x.py"),
    ],
)
def test_a_fault_is_named(source: Path, packed: set[str], fault: str) -> None:
    assert [fault] == check_wheel.faults(packed, source)


def test_a_package_that_is_not_typed_is_a_fault_even_if_the_source_agrees(source: Path) -> None:
    (source / "keyshared" / "py.typed").unlink()
    assert ["missing: keyshared/py.typed"] == check_wheel.faults(GOOD - {"keyshared/py.typed"}, source)


def test_the_exit_status_tells_a_bad_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "keyshared-1.whl", "w") as archive:
        archive.writestr("keyshared/surprise.py", "")
    assert check_wheel.main(tmp_path) == 1
    assert "keyshared-1.whl: does not belong there: keyshared/surprise.py" in capsys.readouterr().err
