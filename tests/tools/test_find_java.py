import os
import stat
import subprocess
from pathlib import Path

import pytest

from tools import find_java

SPARK_FLAG = "--add-modules=jdk.incubator.vector"


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def java_home(home: Path, version: str = "17") -> Path:
    """A Java home whose executable only answers what version it is."""
    answer = f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"
    executable(home / "bin" / "java", f"cat >&2 <<'END'\n{answer}END")
    return home


def path_of(*homes: Path) -> str:
    """A path with nothing but the executables of these homes."""
    return os.pathsep.join(str(home / "bin") for home in homes)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment without Java; its python fails whatever it is asked to install."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    executable(tmp_path / "venv" / "bin" / "python", "exit 1")
    return tmp_path / "venv"


@pytest.fixture
def root(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.is_dir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def stamp(environment: Path) -> str:
    return (environment / "java-home").read_text(encoding="utf-8")


def test_java_home_comes_first(tmp_path: Path, environment: Path) -> None:
    named, other = java_home(tmp_path / "named"), java_home(tmp_path / "other", "21")
    assert find_java.main([str(environment)], {"JAVA_HOME": str(named), "PATH": path_of(other)}) == 0
    assert f"{named}\n" == stamp(environment)


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path, environment: Path, version: str) -> None:
    named, other = java_home(tmp_path / "named", version), java_home(tmp_path / "other", "21")
    assert find_java.main([str(environment)], {"JAVA_HOME": str(named), "PATH": path_of(other)}) == 0
    assert f"{other}\n" == stamp(environment)


def test_a_java_home_without_java_gives_way_to_the_path(tmp_path: Path, environment: Path) -> None:
    other = java_home(tmp_path / "other")
    assert other == find_java.find(environment, {"JAVA_HOME": str(tmp_path / "gone"), "PATH": path_of(other)})


def test_a_link_on_the_path_leads_to_the_home_it_names(tmp_path: Path, environment: Path) -> None:
    home = java_home(tmp_path / "home")
    (tmp_path / "links" / "bin").mkdir(parents=True)
    (tmp_path / "links" / "bin" / "java").symlink_to(home / "bin" / "java")
    assert home == find_java.find(environment, {"PATH": path_of(tmp_path / "links")})


@pytest.mark.parametrize("script", ["exit 1", "echo nonsense >&2", "echo '    java.home = /x' >&2"])
def test_a_java_that_does_not_say_its_version_does_not_count(tmp_path: Path, script: str) -> None:
    assert find_java.usable_home(executable(tmp_path / "java", script)) is None


def test_the_second_run_starts_no_java(tmp_path: Path, environment: Path) -> None:
    home = java_home(tmp_path / "home")
    assert find_java.main([str(environment)], {"PATH": path_of(home)}) == 0
    executable(home / "bin" / "java", "exit 1")
    assert home == find_java.find(environment, {"PATH": ""})
    assert home == find_java.find(environment, {"PATH": "", "JAVA_HOME": str(home)})


def test_a_remembered_java_that_is_gone_is_searched_for_again(tmp_path: Path, environment: Path) -> None:
    old, new = java_home(tmp_path / "old"), java_home(tmp_path / "new")
    find_java.main([str(environment)], {"PATH": path_of(old)})
    (old / "bin" / "java").unlink()
    assert find_java.main([str(environment)], {"PATH": path_of(new)}) == 0
    assert f"{new}\n" == stamp(environment)


def test_another_java_home_overrules_the_remembered_one(tmp_path: Path, environment: Path) -> None:
    old, new, ancient = java_home(tmp_path / "old"), java_home(tmp_path / "new"), java_home(tmp_path / "ancient", "11")
    find_java.main([str(environment)], {"PATH": path_of(old)})
    assert old == find_java.find(environment, {"PATH": "", "JAVA_HOME": str(ancient)})
    assert new == find_java.find(environment, {"PATH": "", "JAVA_HOME": str(new)})


def fake_apt(folder: Path, *, installs: Path, when: str, package: str = "openjdk-17-jre-headless") -> Path:
    """An apt-get that notes its arguments and, when the shell condition holds, installs ``package`` as ``installs``."""
    moved = installs.rename(installs.with_name("not installed yet"))
    executable(
        folder / "bin" / "apt-get",
        f"PATH=/usr/bin:/bin\n"
        f"echo \"$DEBIAN_FRONTEND $*\" >> '{folder}/calls'\n"
        f"[ \"$1\" = update ] && {{ : > '{folder}/updated'; exit 0; }}\n"
        f"case \"$*\" in *{package}*) {when} && mv '{moved}' '{installs}' && exit 0;; esac\n"
        f"exit 100",
    )
    return folder


def apt_calls(folder: Path) -> list[str]:
    words = [line.split() for line in (folder / "calls").read_text(encoding="utf-8").splitlines()]
    assert {"noninteractive"} == {line[0] for line in words}
    return [line[1] if line[1] == "update" else line[-1] for line in words]


@pytest.mark.usefixtures("root")
def test_root_installs_the_package_without_an_update_if_that_works(tmp_path: Path, environment: Path) -> None:
    home = java_home(tmp_path / "home")
    apt = fake_apt(tmp_path / "apt", installs=home, when="true")
    assert home == find_java.find(environment, {"PATH": path_of(apt, home)})
    assert ["openjdk-17-jre-headless"] == apt_calls(apt)[:1]
    assert len(apt_calls(apt)) == 1


@pytest.mark.usefixtures("root")
def test_root_updates_the_lists_if_the_package_is_unknown(tmp_path: Path, environment: Path) -> None:
    home = java_home(tmp_path / "home")
    apt = fake_apt(tmp_path / "apt", installs=home, when=f"[ -e '{tmp_path}/apt/updated' ]")
    assert home == find_java.find(environment, {"PATH": path_of(apt, home)})
    assert len(apt_calls(apt)) == 3
    assert apt_calls(apt)[1] == "update"


@pytest.mark.usefixtures("root")
def test_root_takes_a_newer_package_where_17_is_not_in_the_distribution(tmp_path: Path, environment: Path) -> None:
    home = java_home(tmp_path / "home", "21")
    apt = fake_apt(tmp_path / "apt", installs=home, when="true", package="openjdk-21-jre-headless")
    assert home == find_java.find(environment, {"PATH": path_of(apt, home)})


def test_nobody_but_root_calls_apt(tmp_path: Path, environment: Path) -> None:
    home = java_home(tmp_path / "home")
    apt = fake_apt(tmp_path / "apt", installs=home, when="true")
    assert find_java.find(environment, {"PATH": path_of(apt, home)}) is None
    assert not (tmp_path / "apt" / "calls").exists()


@pytest.mark.usefixtures("root")
def test_the_packed_runtime_is_the_last_resort(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = java_home(tmp_path / "packed runtime")
    executable(
        environment / "bin" / "python",
        f"echo \"$*\" >> '{tmp_path}/calls'\n[ \"$1\" = -c ] && echo '{packed}/bin/java'\nexit 0",
    )
    monkeypatch.setattr(find_java, "JAVA_LOCK", Path("java.txt"))
    assert find_java.main([str(environment)], {"PATH": ""}) == 0
    assert f"{environment / 'java'}\n" == stamp(environment)
    install = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()[0]
    assert install == "-m pip install --quiet --require-hashes -r java.txt"


def test_the_shim_drops_the_flag_and_nothing_else(tmp_path: Path) -> None:
    java = executable(tmp_path / "it's java", "printf '<%s>' \"$@\"")
    shim = find_java.write_shim(tmp_path / "home", str(java)) / "bin" / "java"
    said = subprocess.run(
        [shim, "-cp", "a b", SPARK_FLAG, "", "--add-modules=other", "$x", SPARK_FLAG],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "<-cp><a b><><--add-modules=other><$x>"
    assert shim.stat().st_mode & stat.S_IXUSR


def test_without_any_java_the_last_line_says_what_to_type(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find_java.main([str(environment)], {"PATH": ""}) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: no Java 17 or newer was found")
    assert "sudo apt-get install openjdk-17-jre-headless" in last
    assert not (environment / "java-home").exists()
