"""`calgrad doctor`: what this installation consists of, for bug reports and for finding out why something is slow."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Annotated, Any

import typer

from calgrad._version import __version__
from calgrad.cli.output import JSON_HELP, print_json

NEEDED = ("torch", "numpy", "scikit-learn", "torchmetrics", "safetensors", "typer", "rich", "matplotlib", "pillow")
EXTRAS = {
    "pyarrow": "parquet",
    "transformers": "hf",
    "timm": "timm",
    "tensorboard": "tensorboard",
    "netcal": "bench",
    "probmetrics": "bench",
}
"""Optional package -> the extra that brings it."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor")(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False) -> None:
    """Show versions, devices and optional extras.

    Example: calgrad doctor --json
    """
    found = examine()
    if as_json:
        print_json(found)
        return
    for section in ("calgrad", "system", "packages", "extras", "devices"):
        print(section)
        for name, value in found[section].items():
            print(f"  {name:<16}{_show(value)}")
    missing = sorted({EXTRAS[name] for name, version in found["extras"].items() if version is None})
    if missing:
        print(f"extras that are not installed: pip install 'calgrad[{','.join(missing)}]'")


def examine() -> dict[str, dict[str, Any]]:
    """Everything that `doctor` shows, as plain values."""
    import torch

    import calgrad

    devices: dict[str, Any] = {"cpu": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"}
    devices["cuda build"] = torch.version.cuda
    devices["cudnn"] = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        devices[f"cuda:{i}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        devices["mps"] = "Apple GPU"
    return {
        "calgrad": {
            "version": __version__,
            "where": os.path.dirname(calgrad.__file__),
            "data folder": _data_folder(),
        },
        "system": {
            "python": platform.python_version(),
            "interpreter": sys.executable,
            "platform": platform.platform(),
            "memory (GiB)": _memory(),
        },
        "packages": {name: _version(name) for name in NEEDED},
        "extras": {name: _version(name) for name in EXTRAS},
        "devices": devices,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _data_folder() -> str:
    from calgrad.data import data_root

    return str(data_root(None))


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _show(value: Any) -> str:
    return "-" if value is None else str(value)
