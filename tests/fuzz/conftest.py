"""What every reader must do with every file: give its numbers, or a `CalgradError` that names it; nothing else, ever."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from calgrad.checks import CalgradError

settings.register_profile(
    "fuzz", deadline=None, max_examples=40, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
FUZZ = settings.get_profile("fuzz")
GROWTH = 400 * 1024
"""KiB that reading any of these small files may add to the memory of the process."""


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """The file cut short, with bytes changed, with a piece left out or doubled, or with garbage behind it."""
    size = len(content)
    place = st.integers(0, size - 1)

    def change(edits: list[tuple[int, int]]) -> bytes:
        data = bytearray(content)
        for at, value in edits:
            data[at] = value
        return bytes(data)

    return st.one_of(
        place.map(lambda at: content[:at]),
        st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=8).map(change),
        st.tuples(place, place).map(lambda ends: content[: min(ends)] + content[max(ends) :]),
        st.tuples(place, place).map(lambda ends: content[: max(ends)] + content[min(ends) :]),
        st.binary(max_size=64).map(lambda tail: content + tail),
    )


@pytest.fixture
def check() -> Callable[..., Any]:
    """Read a file of this content: what comes back, or the `CalgradError`, which must name the file."""

    def read(path: Path, content: bytes, reader: Callable[[Path], Any]) -> Any:
        path.write_bytes(content)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            found = reader(path)
        except CalgradError as error:
            found = error
        finally:
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert grown < GROWTH, f"{grown:,} KiB for a file of {len(content):,} bytes"
        if isinstance(found, CalgradError):
            assert path.name in str(found)
            assert len(str(found)) < 5000
        return found

    return read
