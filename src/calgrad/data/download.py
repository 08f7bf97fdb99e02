"""Download a data set from its official address: resumed where it stopped, checked, and unpacked safely.

The bytes go into a `.part` file; a broken download goes on from its end (HTTP Range). Only a file with the right
checksum gets its real name. Unpacking refuses absolute paths, `..`, links and devices before anything is written, and
the finished folder appears at once by a rename.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from calgrad.checks import FileError, InputError
from calgrad.data.root import data_root
from calgrad.data.spec import find_spec

__all__ = ["download", "extract", "fetch", "file_md5", "open_tar"]

_CHUNK = 1 << 18
_ATTEMPTS = 4
_UNFOLDED_FREE, _UNFOLDED_TIMES = 64 << 20, 50
_LARGEST_READ = 1 << 20
Progress = Callable[[int, int | None], None]
"""Called with the bytes done and the bytes in all, if known."""


def fetch(name: str, root: str | Path | None = None, *, force: bool = False, progress: Progress | None = None) -> Path:
    """Download and unpack a data set; returns its folder. One that is there already is left alone unless `force`."""
    spec = find_spec(name)
    if not spec.url:
        raise InputError(f"{spec.name} ({spec.title}) has no public download")
    base = data_root(root)
    folder, archive = base / spec.folder, base / spec.archive
    if folder.is_dir() and not force:
        return folder
    base.mkdir(parents=True, exist_ok=True)
    if force or not archive.is_file() or file_md5(archive) != spec.md5:
        download(spec.url, archive, md5=spec.md5, progress=progress)
    extract(archive, folder)
    return folder


def download(url: str, path: Path, *, md5: str = "", progress: Progress | None = None, timeout: float = 60.0) -> None:
    """Download to `path`, going on from `path.part` if there is one; a wrong checksum is a `FileError`."""
    partial = path.with_name(path.name + ".part")
    stopped: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            if _transfer(url, partial, progress, timeout):
                break
        except (OSError, urllib.error.URLError) as error:
            stopped = error
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                break
    else:
        stopped = stopped or EOFError("the connection closed early")
    done = partial.stat().st_size if partial.exists() else 0
    if stopped is not None:
        raise FileError(f"{url} stopped after {done} bytes ({stopped}); run it again to go on from there") from stopped
    found = file_md5(partial)
    if md5 and found != md5:
        partial.unlink()
        raise FileError(f"{url} gave {done} bytes with MD5 {found}, not {md5}: damaged or not this data set; removed")
    os.replace(partial, path)


def _transfer(url: str, partial: Path, progress: Progress | None, timeout: float) -> bool:
    """One attempt; True once all bytes are there."""
    start = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "calgrad"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # nothing beyond what is there: complete, or a foreign file; the checksum tells
            return True
        raise
    with response:
        if start and response.status != 206:  # the server sends everything from the beginning
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else None
        done = start
        with partial.open("ab" if start else "wb") as out:
            while chunk := response.read(_CHUNK):
                out.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    return total is None or done >= total


def extract(archive: Path, folder: Path) -> None:
    """Unpack so that the archive's top folder becomes `folder`, replacing what is there."""
    scratch = folder.with_name(folder.name + ".unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        if zipfile.is_zipfile(archive):
            _extract_zip(archive, scratch)
        else:
            _extract_tar(archive, scratch)
        top = scratch / folder.name
        if not top.is_dir():
            raise FileError(f"{archive} holds no folder {folder.name}")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(top, folder)
    except FileError:
        raise
    except Exception as error:  # a damaged archive fails in many ways, and a full disk in one more
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise FileError(f"{archive} cannot be unpacked ({why:.300}); is it whole, and is there room?") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _extract_tar(archive: Path, into: Path) -> None:
    room = _Room(archive)
    with open_tar(archive) as tar:
        members = []
        for member in tar:
            _refuse_unsafe(member.name, archive)
            if not (member.isfile() or member.isdir()):
                raise FileError(f"{archive}: {member.name!r} is a link or a device, which a data set has no need of")
            room.take(member.size)  # as declared: nothing is written for a bomb
            members.append(member)
        for member in members:
            if member.isfile() and (stream := tar.extractfile(member)) is not None:
                _write(into / member.name, stream, _Room(archive))


def _extract_zip(archive: Path, into: Path) -> None:
    room = _Room(archive)
    with zipfile.ZipFile(archive) as packed:
        members = packed.infolist()
        for member in members:
            _refuse_unsafe(member.filename, archive)
            if (member.external_attr >> 16) & 0o170000 == 0o120000:
                raise FileError(f"{archive}: {member.filename!r} is a link, which a data set has no need of")
        for member in members:
            if not member.is_dir():
                with packed.open(member) as stream:
                    _write(into / member.filename, stream, room)


def _write(path: Path, stream: IO[bytes], room: _Room) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        while chunk := stream.read(_CHUNK):
            room.take(len(chunk))
            out.write(chunk)


class _Room:
    """How much an archive may unfold into: images hardly shrink, so what grows a hundredfold is a bomb."""

    def __init__(self, archive: Path) -> None:
        self.archive, self.limit = archive, _UNFOLDED_FREE + _UNFOLDED_TIMES * archive.stat().st_size
        self.taken = 0

    def take(self, size: int) -> None:
        self.taken += size
        if self.taken > self.limit:
            raise FileError(f"{self.archive} unfolds into more than {self.limit:,} bytes; a data set does not: refused")


class _Bounded:
    """A decompressed stream that gives no more than a little at a time: tarfile reads whole headers of any size."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.seek, self.tell, self.close = stream.seek, stream.tell, stream.close

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LARGEST_READ:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self.stream.read(size)


@contextmanager
def open_tar(archive: Path) -> Iterator[tarfile.TarFile]:
    """A tar archive, compressed or not, whose headers cannot fill the memory."""
    openers: dict[bytes, Callable[[Path], IO[bytes]]] = {
        b"\x1f\x8b": gzip.open,  # type: ignore[dict-item]
        b"BZh": bz2.open,  # type: ignore[dict-item]
        b"\xfd7zXZ": lzma.open,  # type: ignore[dict-item]
    }
    with archive.open("rb") as file:
        head = file.read(6)
    opener = next((o for magic, o in openers.items() if head.startswith(magic)), lambda path: path.open("rb"))
    with opener(archive) as stream, tarfile.open(fileobj=_Bounded(stream), mode="r:") as tar:  # type: ignore[call-overload]
        yield tar


def _refuse_unsafe(name: str, archive: Path) -> None:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if name.startswith(("/", "\\")) or ".." in parts or (parts and ":" in parts[0]) or "\0" in name:
        raise FileError(f"{archive}: the path {name!r} leads out of the folder; nothing was unpacked")


def file_md5(path: Path) -> str:
    """MD5 of a file, in hexadecimal; for comparison with published sums, not for secrets."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
