"""A comparison as files: CSV, JSON, Markdown, LaTeX, and the picture."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calgrad.report.comparison import VIEWS, Comparison, Row
from calgrad.report.intervals import draw_comparison
from calgrad.report.pooled import Estimate
from calgrad.report.style import save
from calgrad.report.tables import Cell, Table

COLUMNS = ["loss", "accuracy", "ECE [95 %]", "floor", "AdaECE", "cwECE", "NLL", "Brier", "T", "p(ECE)", "p(NLL)"]


def comparison_table(comparison: Comparison, *, title: str) -> Table:
    """The table that `calgrad compare` prints: a section a view, a row a loss."""
    sections = []
    for view in VIEWS:
        rows = [row for row in comparison.rows if row.view == view]
        sections.append((view if view == "as trained" else f"+ {view}", [_cells(comparison, row) for row in rows]))
    seeds = max(row.seeds for row in comparison.rows)
    caption = (
        f"Mean over {seeds} seed{'s' if seeds > 1 else ''}, {comparison.samples} test samples; accuracy, ECE, AdaECE, cwECE and "
        "floor in %. Interval: over seeds and test samples. floor: the ECE a perfectly calibrated model would show here. "
        "temperature: fitted on validation (least NLL); link: the posterior the loss encodes, no parameter. "
        f"p: paired test against {comparison.baseline} in the same view, Holm-adjusted. Bold: best of its view, and "
        "significantly (p < 0.05)."
    )
    return Table(title, COLUMNS, [s for s in sections if s[1]], caption)


def write_comparison(comparison: Comparison, folder: Path, *, title: str, about: dict[str, Any]) -> list[Path]:
    """Write every file of a comparison into `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table = comparison_table(comparison, title=title)
    texts = {
        "compare.md": table.to_markdown(),
        "compare.tex": table.to_latex(),
        "compare.json": json.dumps({"about": about} | comparison.to_dict(), indent=1, allow_nan=False),
    }
    paths = []
    for name, text in texts.items():
        paths.append(folder / name)
        paths[-1].write_text(text)
    paths.append(_write_csv(folder / "compare.csv", [_flat(row) for row in comparison.rows]))
    paths.append(_write_csv(folder / "runs.csv", comparison.runs))
    return paths + save(draw_comparison(comparison, title=title), folder / "compare")


def _cells(comparison: Comparison, row: Row) -> list[Cell]:
    def best(metric: str) -> bool:
        return comparison.is_best(row, metric)

    def p(metric: str) -> str:
        test = row.against.get(metric)
        if test is None or test.p_value is None:
            return "–"
        return "<0.001" if test.p_value < 0.001 else f"{test.p_value:.3f}"

    ece = row.pooled["ece"]
    return [
        Cell(row.loss),
        Cell(f"{100 * row.pooled['accuracy'].value:.2f}", best("accuracy")),
        Cell(f"{100 * ece.value:.2f} [{100 * ece.low:.2f}, {100 * ece.high:.2f}]", best("ece")),
        Cell(f"{100 * row.means['floor']:.2f}"),
        Cell(f"{100 * row.means['adaptive_ece']:.2f}"),
        Cell(f"{100 * row.means['classwise_ece']:.2f}"),
        Cell(f"{row.pooled['nll'].value:.4f}", best("nll")),
        Cell(f"{row.pooled['brier'].value:.4f}", best("brier")),
        Cell("–" if row.temperature is None else f"{row.temperature:.2f}"),
        Cell(p("ece")),
        Cell(p("nll")),
    ]


def _flat(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {"loss": row.loss, "view": row.view, "seeds": row.seeds, "temperature": row.temperature}

    def put(name: str, estimate: Estimate) -> None:
        flat.update({name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high})

    for metric, estimate in row.pooled.items():
        put(metric, estimate)
        if metric in row.against:
            put(f"{metric}_difference", row.against[metric])
            flat[f"{metric}_p_value"] = row.against[metric].p_value
    return flat | {name: value for name, value in row.means.items() if name not in row.pooled}


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
