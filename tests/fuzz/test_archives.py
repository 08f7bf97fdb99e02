"""CIFAR's pickles, and tar and zip archives: no code, no way out of the folder, no bomb."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calgrad.checks import FileError
from calgrad.data.download import extract
from calgrad.data.safe_pickle import restricted_loads

from .conftest import FUZZ, damaged

BATCH = pickle.dumps(
    {b"data": np.arange(12, dtype=np.uint8).reshape(2, 6), b"labels": [0, 1], b"names": ["a"]}, protocol=2
)


# --------------------------------------------------------------------------------------------------------------- pickles


@FUZZ
@given(st.one_of(damaged(BATCH), st.binary(max_size=100)))
def test_damaged_pickles(content):
    try:
        found = restricted_loads(content)
    except pickle.UnpicklingError:
        return
    assert isinstance(found, dict)


def calls(module: str, name: str, argument: bytes = b"X\x01\x00\x00\x00x") -> bytes:
    return b"\x80\x02" + f"c{module}\n{name}\n".encode() + argument + b"\x85R."


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("builtins", "eval"), ("numpy", "load"), ("numpy.core.multiarray", "scalar"), ("_codecs", "decode"),
     ("copyreg", "_reconstructor"), ("calgrad.data.safe_pickle", "_Unpickler"), ("functools", "partial")],
)  # fmt: skip
def test_no_name_but_the_four_is_known(module, name):
    with pytest.raises(pickle.UnpicklingError, match="has no place in a data file"):
        restricted_loads(calls(module, name))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}r" + struct.pack("<I", 0x7FFFFFFF) + b".",  # memo entry 2**31: the C reader would fill 32 GiB
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",  # bytes of a terabyte
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 34) + b".",  # a bytearray of 16 GiB
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b".",  # a frame of a terabyte
        b"\x80\x02" + b"(" * 100_000 + b".",
        b"\x80\x02" + b"]" * 10 + b"a" * 10 + b".",
        b"cos\nsystem\n.",
        b"Pexternal\n.",
        b"\x80\x02\x82\x01.",
    ],
    ids=["memo", "bytes", "bytearray", "frame", "marks", "lists", "name", "persistent", "extension"],
)
def test_pickles_that_ask_for_memory_or_names(content, tmp_path, check):
    def read(path: Path) -> object:
        try:
            return restricted_loads(path.read_bytes())
        except pickle.UnpicklingError as error:
            raise FileError(f"{path}: {error}") from error

    found = check(tmp_path / "batch", content, read)
    assert isinstance(found, FileError | dict)


def test_a_pickle_cannot_change_the_reader():
    # BUILD sets attributes on what lies on the stack: here, on the stand-in for codecs.encode.
    hostile = b"\x80\x02c_codecs\nencode\nN}X\x0c\x00\x00\x00__defaults__N\x85s\x86b."
    with pytest.raises(pickle.UnpicklingError):
        restricted_loads(hostile)
    assert restricted_loads(BATCH)["data"].shape == (2, 6)


# -------------------------------------------------------------------------------------------------------------- archives


def tar_of(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def zip_of(members: dict[str, bytes], mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, content)
    return buffer.getvalue()


GOOD = [(member("data/a.txt"), b"a" * 100), (member("data/sub/b.txt"), b"b" * 2000)]
ARCHIVES = {"tar": tar_of(GOOD), "zip": zip_of({"data/a.txt": b"a" * 100, "data/sub/b.txt": b"b" * 2000})}


def unpack(path: Path) -> list[str]:
    inside = path.parent / "inside" / "target"
    inside.mkdir(parents=True, exist_ok=True)
    extract(path, inside / "data")
    return sorted(str(p.relative_to(inside)) for p in inside.rglob("*") if p.is_file())


def nothing_outside(root: Path) -> bool:
    """Nothing but the archive beside the target folder, and no link anywhere."""
    outside = [p for p in root.rglob("*") if p.is_file() and not p.is_relative_to(root / "inside" / "target" / "data")]
    return [p.name for p in outside] == ["archive"] and not any(p.is_symlink() for p in root.rglob("*"))


@pytest.mark.parametrize("kind", ARCHIVES)
def test_damaged_archives(kind, tmp_path, check):
    assert check(tmp_path / "archive", ARCHIVES[kind], unpack) == ["data/a.txt", "data/sub/b.txt"]

    @FUZZ
    @given(st.one_of(damaged(ARCHIVES[kind]), damaged(gzip.decompress(ARCHIVES["tar"]))))
    def fuzz(content):
        check(tmp_path / "archive", content, unpack)
        assert nothing_outside(tmp_path)

    fuzz()


NAMES = [
    "../out",
    "data/../../out",
    "/tmp/calgrad-out",
    "data/..\\..\\out",
    "C:/out",
    "\\\\host\\out",
    "..",
    "data/a\n/../../../out",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_names_that_lead_out_are_refused_before_anything_is_written(kind, name, tmp_path, check):
    content = tar_of([*GOOD, (member(name), b"x")]) if kind == "tar" else zip_of({"data/a": b"a", name: b"x"})
    assert "leads out of the folder; nothing was unpacked" in str(check(tmp_path / "archive", content, unpack))
    assert nothing_outside(tmp_path)
    assert not os.path.exists("/tmp/calgrad-out")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(kind, tmp_path, check):
    content = tar_of([(member("data/link", kind, "/etc/passwd"), b""), (member("data/link/x"), b"x")])
    assert isinstance(check(tmp_path / "archive", content, unpack), FileError)
    assert nothing_outside(tmp_path)


def test_a_link_in_a_zip_is_refused(tmp_path, check):
    content = zip_of({"data/link": b"/etc"}, mode=stat.S_IFLNK | 0o777)
    assert "is a link" in str(check(tmp_path / "archive", content, unpack))


def zeros(size: int) -> io.BufferedReader:
    class Zeros(io.RawIOBase):
        left = size

        def readable(self) -> bool:
            return True

        def readinto(self, buffer) -> int:
            count = min(len(buffer), self.left)
            buffer[:count] = bytes(count)
            self.left -= count
            return count

    return io.BufferedReader(Zeros(), 1 << 20)


def test_a_tar_bomb_is_stopped_early(tmp_path, check):
    path, size = tmp_path / "archive", 300 << 20
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        info = member("data/zeros")
        info.size = size
        tar.addfile(info, zeros(size))
    assert "unfolds into more than" in str(check(path, path.read_bytes(), unpack))
    assert nothing_outside(tmp_path)


def test_a_zip_bomb_is_stopped_early(tmp_path, check):
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("data/zeros", "w") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    assert "unfolds into more than" in str(check(path, path.read_bytes(), unpack))


def test_a_tar_header_that_fills_the_memory_is_refused(tmp_path, check):
    # A pax header is read whole by tarfile: this one has a gigabyte of zeros, in a megabyte of gzip.
    info = member("data/x", tarfile.XHDTYPE)
    info.size = 1 << 30
    path = tmp_path / "archive"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(info.tobuf(tarfile.PAX_FORMAT))
        for _ in range(64):
            packed.write(bytes(1 << 20))
    assert isinstance(check(path, path.read_bytes(), unpack), FileError)
