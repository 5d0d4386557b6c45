"""Gets one version of an npm package through the npm that is installed, and believes nothing but its bytes.

Nothing of the package is run: a tarball is a folder in one file, and only the files that are asked for leave it.
"""

import hashlib
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from keyshared.errors import ArgumentError

__all__ = ["NpmPackage", "extracted", "fetched"]

_TIMEOUT_SECONDS: Final = 900
_TOP: Final = "package"  # every npm package is packed below this folder


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """One version of a package, by what its bytes must be.

    Attributes:
        name: Its name.
        version: Its version.
        sha512: Of the tarball, in hexadecimal: what npm calls its integrity.
    """

    name: str
    version: str
    sha512: str

    @property
    def file_name(self) -> str:
        """What npm calls the tarball."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def fetched(package: NpmPackage, folder: Path) -> Path:
    """Get the tarball of a package, from the folder if it is there already, else by ``npm pack``.

    Where there is no npm, put the tarball into the folder by other means: it has to be the same in every byte anyway.

    Args:
        package: Which.
        folder: Where it is kept; it must exist.

    Returns:
        The tarball, whose bytes are what they have to be.

    Raises:
        ArgumentError: There is no npm, npm could not fetch it, or the bytes are others; these are not kept.

    Example:
        >>> fetched(NpmPackage("left-pad", "1.3.0", "5db8..."), Path("packages"))  # doctest: +SKIP
        PosixPath('packages/left-pad-1.3.0.tgz')
    """
    kept = folder / package.file_name
    if kept.exists():
        _check(package, kept)
        return kept
    with TemporaryDirectory(dir=folder) as beside:
        packed = _pack(package, Path(beside), kept)
        _check(package, packed)
        return packed.rename(kept)  # at once and whole: who was interrupted finds nothing


def extracted(tarball: Path, member: str, folder: Path) -> Path:
    """Take one file out of a tarball of npm.

    Args:
        tarball: What `fetched` gave.
        member: Where it lies in the package, like ``data/flights.csv``.
        folder: Where it goes, by the last part of its name; an older file is replaced.

    Returns:
        The file.

    Raises:
        ArgumentError: The package has no such file.
    """
    target = folder / Path(member).name
    with tarfile.open(tarball, "r:gz") as archive:
        try:
            source = archive.extractfile(f"{_TOP}/{member}")
        except KeyError:
            source = None
        if source is None:
            raise ArgumentError("member", member, f"be a file in {tarball.name}")
        part = target.with_name(f"{target.name}.part")
        with source, part.open("wb") as file:
            shutil.copyfileobj(source, file)
    return part.replace(target)


def _check(package: NpmPackage, tarball: Path) -> None:
    with tarball.open("rb") as file:
        digest = hashlib.file_digest(file, "sha512").hexdigest()
    if digest != package.sha512:
        raise ArgumentError(str(tarball), digest, f"have the SHA-512 of {package}, {package.sha512}; remove it")


def _pack(package: NpmPackage, folder: Path, kept: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise ArgumentError("npm", None, f"be installed to fetch {package}, or {kept} be there already")
    command = [npm, "pack", str(package), "--ignore-scripts", "--silent", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(  # noqa: S603 - the name is a constant of the caller
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArgumentError("npm", npm, f"fetch {package} ({error})") from error
    packed = folder / package.file_name
    if done.returncode or not packed.exists():
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ArgumentError("npm", npm, f"fetch {package}, or {kept} be there already ({lines[-1]})")
    return packed
