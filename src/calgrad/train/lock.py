"""One process in a run folder at a time.

The lock is the kernel's (POSIX record lock on `.lock`): it ends with the process that holds it, however that ends, so
none is ever stale, and a forked data worker that outlives its parent does not keep it. The file's text is for people:
who holds it. Where the file system knows no locks, the run goes on without one.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from calgrad.checks import CalgradError

LOCK = ".lock"
_held: set[Path] = set()
"""Folders that this process holds: record locks do not keep a process from itself."""


class LockedError(CalgradError):
    """Another process is working in this run folder."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder for the block; `LockedError` if someone else does."""
    path = folder.resolve() / LOCK
    if path in _held:
        raise _locked(folder, f"process {os.getpid()} (this one)")
    descriptor = _acquire(path, folder)
    _held.add(path)
    try:
        yield
    finally:
        _held.discard(path)
        if descriptor is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)  # before the lock goes: whoever opened it meanwhile sees that it is gone
            os.close(descriptor)


def _acquire(path: Path, folder: Path) -> int | None:
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _locked(folder, holder or "another process") from None
            return None
        if _is_still(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            return descriptor
        os.close(descriptor)  # the holder left and took the file with it between our two calls


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def _locked(folder: Path, holder: str) -> LockedError:
    return LockedError(
        f"{folder} is in use by {holder}; wait for it, stop it, or choose another folder (the lock goes with its process)"
    )
