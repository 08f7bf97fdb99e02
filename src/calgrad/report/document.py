"""From models to what the page says: plain lists and numbers, nothing of HTML.

`make_report` reads, measures and judges; `Report` writes it as a page. What the browser may switch (bins, scheme, class,
models) is here as aggregates, so that the page's size does not depend on the number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from calgrad._version import __version__
from calgrad.checks import InputError
from calgrad.files import write_text
from calgrad.metrics import compare_models
from calgrad.report.cells import BIN_COUNTS
from calgrad.report.comparison import Comparison
from calgrad.report.describe import describe_model, shared_cells
from calgrad.report.history import history_of
from calgrad.report.html import page
from calgrad.report.images import Images
from calgrad.report.pooled import holm
from calgrad.report.repairs import METHODS
from calgrad.report.sources import Model, RunState, Sources, read_sources

CLASS_DIAGRAMS = 400
"""Diagrams of single classes in a page, shared between its models: what keeps ten models with many classes small."""


@dataclass(frozen=True)
class Report:
    """A finished report: `save` it, or let a notebook show it."""

    document: dict[str, Any]

    def html(self) -> str:
        """The page: one string that needs nothing else."""
        return page(self.document)

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all."""
        return write_text(Path(path), self.html())

    def _repr_html_(self) -> str:
        from html import escape

        frame = 'sandbox="allow-scripts" style="width:100%;height:46rem;border:1px solid #ccc;border-radius:8px"'
        return f'<iframe title="calibration report" {frame} srcdoc="{escape(self.html())}"></iframe>'


def make_report(
    models: Sequence[Model] | Sequence[str | Path] | Sources,
    *,
    title: str = "",
    images: Images | None = None,
    repairs: bool = True,
    methods: Sequence[str] = METHODS,
    comparison: Comparison | None = None,
    seed: int = 0,
    cache: dict[str, dict[str, Any]] | None = None,
    on_model: Callable[[], None] | None = None,
) -> Report:
    """Measure and judge models, and make the page about them.

    Args:
        models: what to report on: models, or paths of files and runs, or what `read_sources` found.
        title: of the page.
        images: for thumbnails of mistakes, see `open_images`.
        repairs: compare post-hoc methods, which is most of the work.
        methods: the post-hoc methods to compare, the simplest first.
        comparison: losses pooled over seeds, from `calgrad.report.comparison.compare`.
        seed: of every resampling.
        cache: of models already described, by stamp; filled and used where given, and then nothing to report on is no
            error but a page that waits.
        on_model: called after each model, for a progress bar.

    Example:
        >>> import torch
        >>> from calgrad.predictions import Predictions
        >>> from calgrad.report.document import make_report
        >>> from calgrad.report.sources import Model
        >>> logits = 3 * torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> report = make_report([Model("noise", Predictions(logits, logits.argmax(1)))], repairs=False)
        >>> report.document["models"][0]["verdict"]["level"]
        'no'
    """
    found = _found(models)
    if not found.models and not found.runs and cache is None:
        raise InputError(
            "nothing to report on: no predictions and no runs were found" + "".join(f"\n  {p}" for p in found.problems)
        )
    quota = max(8, CLASS_DIAGRAMS // max(1, len(found.models)))
    described, fresh = [], {}
    for model in found.models:
        classes = min(model.test.classes, quota)
        key = f"{model.name};{classes};{model.stamp}"
        known = cache.get(key) if cache is not None and model.stamp else None
        if known is None:
            known = describe_model(model, images=images, methods=methods if repairs else (), classes=classes, seed=seed)
        fresh[key] = known
        described.append(dict(known))
        if on_model is not None:
            on_model()
    if cache is not None:
        cache.clear()
        cache.update(fresh)
    note = _test_models(found.models, described, seed)
    return Report(
        {
            "title": title or _title(found),
            "bins": list(BIN_COUNTS),
            "width": shared_cells(),
            "models": described,
            "runs": [_run(run) for run in found.runs],
            "losses": _losses(comparison) if comparison is not None else None,
            "tests_note": note,
            "problems": found.problems,
            "live": None,
            "footer": f"Made by calgrad {__version__} from the predictions alone; the page loads nothing from a network.",
        }
    )


def _found(models: Sequence[Model] | Sequence[str | Path] | Sources) -> Sources:
    if isinstance(models, Sources):
        return models
    given = [models] if isinstance(models, (str, Path)) else list(models)
    if all(isinstance(entry, Model) for entry in given):
        return Sources(models=given)  # type: ignore[arg-type]
    return read_sources(given)  # type: ignore[arg-type]


def _test_models(models: Sequence[Model], described: list[dict[str, Any]], seed: int) -> str:
    """Paired tests of every model against the first, where they answered the same samples; returns a note."""
    if len(models) < 2:
        return ""
    first = models[0].test
    rivals = [i for i, m in enumerate(models) if i and m.test.n == first.n and torch.equal(m.test.labels, first.labels)]
    if not rivals:
        return "The models answered different samples, so no paired test compares them."
    tests = {i: compare_models(models[i].test, models[0].test, seed=seed) for i in rivals}
    for metric in ("ece", "nll", "brier", "accuracy"):
        adjusted = holm([getattr(t, metric).p_value for t in tests.values()])
        for i, p_value in zip(tests, adjusted, strict=True):
            difference = getattr(tests[i], metric)
            described[i]["against"] = (described[i]["against"] or {}) | {
                metric: {
                    "value": difference.difference,
                    "low": difference.low,
                    "high": difference.high,
                    "p_value": p_value,
                }
            }
    others = "" if len(rivals) == len(models) - 1 else " Models without p answered other samples."
    return (
        f"p: paired tests against {models[0].name} on the same samples, Holm-adjusted. They see the test samples, not the "
        f"luck of the training seed.{others}"
    )


def _run(run: RunState) -> dict[str, Any]:
    history: dict[str, Any] = dict(history_of(run.record))
    epochs = run.record.recipe.get("epochs")
    return {
        "name": run.name,
        "status": run.record.status,
        "done": len(run.record.epochs),
        "epochs": epochs,
        "history": history,
    }


def _losses(comparison: Comparison) -> dict[str, Any]:
    def estimate(row: Any, metric: str) -> dict[str, float]:
        pooled = row.pooled[metric]
        return {"value": pooled.value, "low": pooled.low, "high": pooled.high}

    rows = [
        {
            "loss": r.loss,
            "view": r.view,
            "floor": r.means["floor"],
            **{m: estimate(r, m) for m in ("ece", "nll", "brier")},
        }
        for r in comparison.rows
    ]
    seeds = max(r.seeds for r in comparison.rows)
    caption = (
        f"Mean over {seeds} seed{'s' if seeds > 1 else ''} with 95 % intervals over seeds and test samples. Grey: what a "
        "calibrated model would show by chance."
    )
    return {"rows": rows, "caption": caption}


def _title(found: Sources) -> str:
    names = [m.name for m in found.models] or [r.name for r in found.runs]
    if not names:
        return "Calibration: waiting for the first run"
    return f"Calibration of {names[0]}" if len(names) == 1 else f"Calibration of {len(names)} models"
