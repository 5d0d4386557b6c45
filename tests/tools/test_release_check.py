import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.release_check import main, open_points

INIT = Path("src/keyshared/__init__.py")


def written(root: Path, name: str | Path, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def git(root: Path, *arguments: str) -> None:
    author = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    subprocess.run(["git", *author, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A project that may be released as 0.2.0."""
    written(tmp_path, INIT, '__version__ = "0.2.0"\n')
    written(tmp_path, "CHANGELOG.md", "# Changelog\n\n## 0.2.0 (2026-12-01)\n")
    written(tmp_path, "changelog.d/README.md", "about fragments\n")
    written(tmp_path, "tests/compatibility/kept/0.2/states.json", "{}\n")
    kafka = '[project]\nname = "keyshared-kafka"\nversion = "0.2.0"\ndependencies = ["keyshared>=0.2"]\n'
    written(tmp_path, "integrations/kafka/pyproject.toml", kafka)
    for name in ("LICENSE", "SECURITY.md", "CITATION.cff"):
        written(tmp_path, name, "\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    return tmp_path


def tagged(root: Path) -> None:
    git(root, "tag", "v0.2.0")


def no_paper(root: Path) -> None:
    (root / "SECURITY.md").unlink()
    git(root, "commit", "-q", "-a", "-m", "away")


def changed(name: str | Path, text: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        written(root, name, text)
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", "change")

    return change


def test_what_is_ready_may_be_released(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(ready)
    assert "git tag v0.2.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (changed(INIT, '__version__ = "0.2.0.dev1"\n'), "'0.2.0.dev1'"),
        (tagged, "raise the version"),
        (lambda root: written(root, "new.txt", ""), "not committed: ?? new.txt"),
        (changed("changelog.d/+one.added.md", "New."), "1 fragments"),
        (changed("CHANGELOG.md", "# Changelog\n\n## 0.1.0 (2026-06-01)\n"), "no section"),
        (changed("CHANGELOG.md", "# Changelog\n\n## 0.2.0 (not released yet)\n"), "'not released yet'"),
        (changed("integrations/kafka/pyproject.toml", '[project]\nname = "k"\nversion = "0.1.0"\n'), "k is 0.1.0"),
        (no_paper, "missing: SECURITY.md"),
    ],
)
def test_an_open_point_is_named(
    ready: Path, capsys: pytest.CaptureFixture[str], fault: Callable[[Path], None], said: str
) -> None:
    fault(ready)

    assert 1 == main(ready)
    assert said in capsys.readouterr().out
    assert said in " ".join(open_points(ready).values())


def test_a_version_whose_states_are_not_kept_is_not_ready(ready: Path) -> None:
    changed(INIT, '__version__ = "0.3.0"\n')(ready)

    assert any("keep_states.py 0.3" in missing for missing in open_points(ready).values())
