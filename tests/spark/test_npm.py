"""Packages of npm: nothing is believed but their bytes, nothing half done stays. No network: npm is a small script."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from examples.airports.npm import NpmPackage, extracted, fetched

from keyshared.errors import ArgumentError


def tarball(path: Path, content: bytes = b"a,b\n") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("package/data/log.csv")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
        folder = tarfile.TarInfo("package/data/folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return path


def package(path: Path, *, name: str = "some-logs") -> NpmPackage:
    return NpmPackage(name, "1.2.3", hashlib.sha512(path.read_bytes()).hexdigest())


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An npm that puts a tarball where it is told and writes down what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tarball(folder / "packed.tgz")
    script = folder / "npm"
    script.write_text(f'#!/bin/sh\necho "$@" > "{folder}/asked"\ncp "{folder}/packed.tgz" "$6/some-logs-1.2.3.tgz"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def test_npm_is_asked_once_and_runs_nothing_of_the_package(npm: Path, data: Path) -> None:
    wanted = package(npm / "packed.tgz")
    assert data / "some-logs-1.2.3.tgz" == fetched(wanted, data)
    asked = (npm / "asked").read_text()
    assert asked.startswith("pack some-logs@1.2.3 --ignore-scripts --silent --pack-destination ")
    (npm / "asked").unlink()
    assert data / "some-logs-1.2.3.tgz" == fetched(wanted, data)
    assert not (npm / "asked").exists()
    assert ["some-logs-1.2.3.tgz"] == [path.name for path in data.iterdir()]


def test_other_bytes_are_refused_and_not_kept(npm: Path, data: Path) -> None:
    wanted = package(npm / "packed.tgz")
    tarball(npm / "packed.tgz", b"something else\n")
    with pytest.raises(ArgumentError, match=r"must have the SHA-512 of some-logs@1\.2\.3"):
        fetched(wanted, data)
    assert [] == list(data.iterdir())


def test_a_tarball_that_is_there_is_looked_at_as_well(npm: Path, data: Path) -> None:
    (data / "some-logs-1.2.3.tgz").write_bytes(b"old")
    with pytest.raises(ArgumentError, match="must have the SHA-512"):
        fetched(package(npm / "packed.tgz"), data)
    assert not (npm / "asked").exists()


def test_without_npm_the_error_says_where_the_tarball_may_be_put(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = package(tarball(tmp_path / "elsewhere.tgz"))
    monkeypatch.setenv("PATH", str(data))
    with pytest.raises(ArgumentError, match=r"be installed to fetch some-logs@1\.2\.3, or .*/some-logs-1\.2\.3\.tgz"):
        fetched(wanted, data)
    (tmp_path / "elsewhere.tgz").rename(data / "some-logs-1.2.3.tgz")
    assert data / "some-logs-1.2.3.tgz" == fetched(wanted, data)


@pytest.mark.parametrize(
    ("script", "told"),
    [("echo first >&2; echo 'E404 not there' >&2; exit 1", "E404 not there"), ("exit 0", "it said nothing")],
)
def test_what_npm_says_last_is_told_when_it_fails(npm: Path, data: Path, script: str, told: str) -> None:
    (npm / "npm").write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(ArgumentError, match=told):
        fetched(package(npm / "packed.tgz"), data)
    assert [] == list(data.iterdir())


def test_an_npm_that_cannot_be_started_is_refused(npm: Path, data: Path) -> None:
    (npm / "npm").write_text("#!/nowhere/at/all\n")
    with pytest.raises(ArgumentError, match=r"npm is '.*'; it must fetch some-logs"):
        fetched(package(npm / "packed.tgz"), data)


def test_the_tarball_of_a_package_with_a_scope_is_called_as_npm_does() -> None:
    assert "scope-logs-2.0.0.tgz" == NpmPackage("@scope/logs", "2.0.0", "").file_name


def test_one_file_leaves_the_tarball_and_replaces_an_older_one(data: Path, tmp_path: Path) -> None:
    packed = tarball(tmp_path / "packed.tgz")
    (data / "log.csv").write_text("old" * 100)
    assert data / "log.csv" == extracted(packed, "data/log.csv", data)
    assert b"a,b\n" == (data / "log.csv").read_bytes()
    assert ["log.csv"] == [path.name for path in data.iterdir()]


@pytest.mark.parametrize("member", ["data/none.csv", "data/folder"])
def test_what_is_no_file_in_the_tarball_is_refused(data: Path, tmp_path: Path, member: str) -> None:
    packed = tarball(tmp_path / "packed.tgz")
    with pytest.raises(ArgumentError, match=r"be a file in packed\.tgz"):
        extracted(packed, member, data)
    assert [] == list(data.iterdir())
