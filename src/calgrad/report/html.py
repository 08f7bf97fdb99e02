"""The page's shell: data, style and script in one file that asks nothing of a network.

Three walls between a hostile name in a file and the reader: the JSON cannot end its script element, the script writes
names as text nodes only, and the page's own policy lets no script run but the one whose hash it carries.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import math
import string
import unicodedata
from importlib import resources
from typing import Any

from calgrad._version import __version__

LONGEST = 600
"""Characters of a text that the page shows: our longest sentence fits; a longer name from a file is no name."""


def page(document: dict[str, Any]) -> str:
    """The whole page as one string."""
    style, script = _asset("page.css"), _script()
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "connect-src 'self'" if document.get("live") else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    shown = presentable(document)
    return string.Template(_asset("page.html")).substitute(
        policy=html.escape(policy, quote=True).replace("&#x27;", "'"),
        version=__version__,
        title=html.escape(shown["title"]),
        style=style,
        plain=_plain(shown),
        data=script_json(shown),
        script=script,
    )


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element: no `<`, `>` or `&`, and nothing beyond ASCII."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def presentable(value: Any) -> Any:
    """A copy that JSON can hold and a person can read: no NaN, no control or direction-changing characters, no novels."""
    if isinstance(value, dict):
        return {str(key): presentable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [presentable(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, str) and not value.startswith("data:image/png;base64,"):
        return _readable(value)
    return value


def _readable(text: str) -> str:
    if text.isascii() and text.isprintable() and len(text) <= LONGEST:
        return text
    kept = "".join(
        c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn") else "\ufffd" for c in text
    )
    return kept if len(kept) <= LONGEST else kept[:LONGEST] + "…"


def _plain(document: dict[str, Any]) -> str:
    """The verdicts for a reader without scripts."""
    parts = ["<p>Scripts are switched off, so the pictures are missing. The answers:</p>"]
    for model in document["models"]:
        sentences = [model["verdict"]["headline"], *model["verdict"]["sentences"]]
        parts.append(f"<h2>{html.escape(model['name'])}</h2>" + "".join(f"<p>{html.escape(s)}</p>" for s in sentences))
    return "\n".join(parts)


@functools.cache
def _asset(name: str) -> str:
    return (resources.files("calgrad.report") / "page" / name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    folder = resources.files("calgrad.report") / "page"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".js"))
    return '(() => {\n"use strict";\n' + "\n".join(_asset(name) for name in names) + "\n})();"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
