"""`calgrad losses` and `calgrad calibrators`: the two tables of names, with formulas."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from calgrad.cli.output import JSON_HELP, print_json, print_table

Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]


def register(app: typer.Typer) -> None:
    """Add both commands to the application."""
    app.command("losses")(losses)
    app.command("calibrators")(calibrators)


def losses(as_json: Json = False) -> None:
    """List the losses, with their formulas.

    In a formula CE is -log p_y, and what stands in [brackets] is not differentiated: it weights the gradient.

    Example: calgrad losses --json
    """
    from calgrad.losses import LOSSES

    rows = [
        {
            "name": entry.name,
            "formula": entry.formula,
            "defaults": _plain(entry.defaults),
            "summary": entry.summary,
            "reference": entry.reference,
        }
        for entry in LOSSES.values()
    ]
    if as_json:
        print_json(rows)
        return
    _show(rows, "CE is -log p_y; what stands in [brackets] is not differentiated: it weights the gradient")


def calibrators(as_json: Json = False) -> None:
    """List the post-hoc calibrators, with their formulas.

    Example: calgrad calibrators --json
    """
    from calgrad.posthoc import CALIBRATORS

    rows = [
        {
            "name": entry.name,
            "formula": entry.formula,
            "defaults": _plain(entry.options),
            "summary": entry.summary,
            "reference": entry.reference,
        }
        for entry in CALIBRATORS.values()
    ]
    if as_json:
        print_json(rows)
        return
    _show(rows, "z are the logits, K the number of classes")


def _show(rows: list[dict[str, Any]], footer: str) -> None:
    columns = ("name", "formula", "defaults", "summary", "reference")
    cells = [[_text(row[column]) for column in columns] for row in rows]
    print_table(columns, cells, wide=("formula", "defaults", "summary", "reference"))
    print(footer)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)) and len(value) > 4:
        return f"({value[0]}, {value[1]}, ..., {value[-1]})"
    return str(value)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    known = (str, int, float, bool, list, tuple, dict, type(None))
    return {name: value if isinstance(value, known) else repr(value) for name, value in options.items()}
