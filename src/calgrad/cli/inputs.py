"""What commands are given: files of predictions, the shipped example among them, and name=value options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EXAMPLES = {"example": "example-test.npz", "example-test": "example-test.npz", "example-val": "example-val.npz"}
"""Names that stand for shipped files; they have no suffix, so no file of predictions can be meant."""


def resolve(name: str) -> Path:
    """The path of a file of predictions, or of a shipped example."""
    if name in EXAMPLES:
        return Path(__file__).parents[1] / "examples" / EXAMPLES[name]
    return Path(name)


def parse_options(texts: list[str] | None, *, flag: str) -> dict[str, Any]:
    """name=value options; a value is JSON where it can be (4, 0.5, true) and text where not."""
    from calgrad.checks import InputError

    options: dict[str, Any] = {}
    for text in texts or []:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise InputError(f"{flag} takes name=value, as in {flag} gamma=4, got {text!r}")
        try:
            options[name.strip().replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            options[name.strip().replace("-", "_")] = value.strip()
    return options
