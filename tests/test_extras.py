"""Without the package of an extra everything else works, and what needs it says which extra to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from keyshared._checks import check_extra
from keyshared.errors import MissingExtraError

ASK = """
import sys
sys.modules[{package!r}] = None
import keyshared, keyshared.testing
from keyshared.errors import MissingExtraError
try:
    {what}
except MissingExtraError as error:
    print(error)
"""
MURMUR = "from keyshared.hashing import MURMUR3_32 as h; h.function(b'key')"
BLAKE = "from keyshared.hashing import CELERIANT_LE as h; h.function(b'key')"


@pytest.mark.parametrize(
    ("package", "what", "extra"),
    [
        ("pyspark", "import keyshared.spark", "spark"),
        ("pyspark", "from keyshared import spark", "spark"),
        ("pyspark", "import keyshared.spark.columns", "spark"),
        ("hypothesis", "import keyshared.testing.strategies", "testing"),
        ("mmh3", MURMUR, "pulsar"),
        ("blake3", BLAKE, "celeriant"),
    ],
)
def test_a_missing_package_is_told_with_the_extra_that_brings_it(package: str, what: str, extra: str) -> None:
    code = ASK.format(package=package, what=what)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert f"this needs the package {package!r}, which is not installed; install keyshared[{extra}]\n" == ran.stdout


def test_what_an_installed_package_lacks_is_named_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "half_installed.py").write_text("import not_installed.at_all\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(MissingExtraError) as caught:
        check_extra("spark", "json", "half_installed")
    assert ("not_installed", "spark") == (caught.value.package, caught.value.extra)
