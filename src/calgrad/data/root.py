"""Where data sets are kept: an argument, else CALGRAD_DATA, else the user's cache folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from calgrad.checks import FileError
from calgrad.data.spec import DataSpec

__all__ = ["data_root", "find_data", "missing_data"]


def data_root(root: str | Path | None = None) -> Path:
    """The folder that holds the data sets; it need not exist."""
    if root is not None:
        return Path(root).expanduser()
    if configured := os.environ.get("CALGRAD_DATA"):
        return Path(configured).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "calgrad" / "data"


def find_data(spec: DataSpec, root: str | Path | None = None) -> Path:
    """The data set's folder or archive: `root` itself, or in it."""
    base = data_root(root)
    if base.name in (spec.folder, spec.archive) and base.exists():
        return base
    places = [base / name for name in (spec.folder, spec.archive) if name]
    for place in places:
        if place.exists():
            return place
    raise missing_data(spec, places)


def missing_data(spec: DataSpec, places: list[Path]) -> FileError:
    """Say where a data set was looked for, and what to run."""
    looked = " and ".join(str(place) for place in places)
    if spec.url:
        advice = f"run `calgrad data fetch {spec.name}` to download it"
    else:
        advice = f"{spec.name} has no public download; put it there by hand"
    return FileError(
        f"{spec.name} was not found: looked for {looked}; {advice}, or say where it is with root=... or CALGRAD_DATA"
    )
