"""Files that appear whole or not at all, and how much memory reading one may take.

Every file that calgrad writes goes into a neighbour first, which takes the name once it is complete. A crash, a full
disk or a signal then costs the new file and never the old one, and a reader never meets half of one. Whatever the
system refuses becomes a `FileError` that names the file.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from calgrad.checks import FileError, InputError

YAML_LIMIT, YAML_DEPTH = 1 << 18, 50
"""The longest and the most deeply nested YAML that is read: recipes and grids are text that people write."""


@contextmanager
def whole_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a neighbour of `path` to write to; it takes the name when the block ends well and vanishes when not.

    Args:
        path: The file's name; its folder is made if it is missing.
        durable: Also wait until the disk has it, so that not even a power cut can lose it.
    """
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        if durable:
            _sync(beside)
        os.replace(beside, path)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {_reason(error, path)}") from error
    finally:
        with suppress(OSError):  # where the folder itself is the trouble, that error has been raised already
            beside.unlink(missing_ok=True)
    if durable:
        with suppress(OSError):  # not every system lets a folder be opened, and then the rename itself must do
            _sync(path.parent)


def write_bytes(path: Path, data: bytes | memoryview, *, durable: bool = False) -> Path:
    """Put `data` at `path`, whole or not at all."""
    with whole_file(path, durable=durable) as beside, open(beside, "wb") as file:
        file.write(data)
    return path


def write_text(path: Path, text: str, *, durable: bool = False) -> Path:
    """Put `text` at `path` as UTF-8, whole or not at all."""
    return write_bytes(path, text.encode(), durable=durable)


def make_folder(folder: Path) -> None:
    """Make a folder that this process can write to, or say why not before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{uuid.uuid4().hex[:8]}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FileError(f"{folder} cannot be written to: {_reason(error, folder)}") from error


def read_yaml(text: str, where: str) -> Any:
    """Plain YAML values; refuses what only an attack, or a mistake, would hold.

    Tags that make Python objects are unknown to the safe loader. Aliases are refused too: a few lines of them stand for
    more values than memory can hold, the moment anything looks at them all.
    """
    import yaml

    if len(text) > YAML_LIMIT:
        raise FileError(f"{where} has {len(text):,} characters of YAML; at most {YAML_LIMIT:,} are read")
    try:
        depth = 0
        for token in yaml.scan(text):  # lazily: the scanner itself is slow on what is nested ever deeper
            kind = type(token).__name__
            depth += kind.endswith("StartToken") - kind.endswith("EndToken")
            if depth > YAML_DEPTH:
                raise InputError(f"{where} is nested more than {YAML_DEPTH} deep, which no recipe needs")
            if isinstance(token, yaml.AliasToken):
                raise InputError(f"{where} uses YAML aliases (*name), which are not read: write the values out")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise FileError(f"{where} is not YAML that can be read: {' '.join(str(error).split()):.300}") from error


def memory() -> float:
    """Bytes of memory that this process may use, by the machine or its container; infinite where neither says."""
    known = []
    with suppress(ValueError, OSError, AttributeError):
        known.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    with suppress(ValueError, OSError):
        known.append(float(Path("/sys/fs/cgroup/memory.max").read_text()))  # "max" is no number: no limit
    return min(known, default=float("inf"))


def _reason(error: OSError, path: Path) -> str:
    """What the system said, with how much room is left where that is the trouble."""
    said = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        with suppress(OSError):
            said += f" ({shutil.disk_usage(path.parent).free / 2**20:,.0f} MiB free)"
        said += "; what was there before is untouched"
    return said


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
