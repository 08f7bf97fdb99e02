"""What commands print: JSON on stdout and nothing else, or tables; progress, notes and warnings on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

JSON_HELP = "Print JSON and nothing else on stdout."


def print_json(value: Any) -> None:
    """Strict JSON: what is not a finite number is null."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False, wide: Sequence[str] = ()
) -> None:
    """A table on stdout; with `numbers`, every column but the first is set to the right; `wide` ones may wrap."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if numbers and i else "left", no_wrap=name not in wide)
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    # Piped output is not cut at 80 columns: a table that a program or a reader cannot see whole is of no use.
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def note(text: str) -> None:
    """A line for the reader, on stderr."""
    print(text, file=sys.stderr)


def warn(text: str) -> None:
    """A warning, on stderr."""
    note(f"warning: {text}")


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Any]:
    """A bar on stderr for long work, gone when it is done; yields a function that advances it. Silent in a pipe."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda amount: bar.advance(task, amount)
