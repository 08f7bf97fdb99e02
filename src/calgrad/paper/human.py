"""[Lin25] appendix, "Sample-wise calibration metric": how far is a prediction from what people answer?

ECE judges groups of samples. CIFAR-10H has about 51 answers for every CIFAR-10 test image, an estimate of eta(x)
itself, so each prediction can be judged on its own: by its L2 distance, its total variation and its
Kullback-Leibler divergence from the answers. 51 answers are noisy: as far as they would be from 51 other people's,
no prediction needs to come closer, and that distance is given beside the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from calgrad.checks import FileError, InputError
from calgrad.data.human import read_votes
from calgrad.losses import make_loss
from calgrad.paper.runs import Row, RunId, find_runs
from calgrad.posthoc import make_calibrator
from calgrad.predictions import Predictions
from calgrad.report.tables import Cell, Table
from calgrad.train.record import Record

MEASURES = ("l2", "tv", "kl")
USUAL_ANSWERS = 51.0
"""How many answers an image has in CIFAR-10H, where a file holds fractions only."""
LEAST_AGREEMENT = 0.9
"""People agree with 99 % of the labels; answers in another order than the predictions, with 10 %."""


@dataclass(frozen=True)
class HumanLabels:
    """The answers for the CIFAR-10 test set, in its order: how many, (N,), and their distribution, (N, K)."""

    probs: Tensor
    answers: Tensor

    @classmethod
    def load(cls, path: str | Path) -> HumanLabels:
        """Read `cifar10h-counts.npy`, `cifar10h-probs.npy`, or an `.npz` with `probs` or `counts`."""
        votes = torch.from_numpy(read_votes(Path(path)))
        totals = votes.sum(dim=1, keepdim=True)
        if votes.ndim != 2 or bool((totals <= 0).any()):
            raise FileError(f"{path}: expected answers by image and class, with at least one an image")
        answers = (
            totals.squeeze(1) if float(totals.min()) > 1.5 else torch.full((len(votes),), 51.0, dtype=torch.float64)
        )
        return cls(votes / totals, answers)

    def of(self, predictions: Predictions) -> HumanLabels:
        """The answers for these predictions, matched by id where they have whole numbers as ids, else by row."""
        rows = torch.arange(predictions.n)
        if predictions.ids is not None and predictions.ids.dtype.kind == "i":
            rows = torch.from_numpy(predictions.ids.copy())
        if (
            len(rows) > len(self.probs)
            or int(rows.max()) >= len(self.probs)
            or predictions.classes != self.probs.shape[1]
        ):
            raise InputError(
                f"{predictions!r} is not a prediction of the {len(self.probs)} images with answers; human labels exist for "
                "the CIFAR-10 test set"
            )
        probs = self.probs[rows]
        agreement = float((probs.argmax(dim=1) == predictions.labels).double().mean())
        if agreement < LEAST_AGREEMENT:
            raise InputError(
                f"people agree with only {agreement:.1%} of the labels: the predictions are in another order"
            )
        return HumanLabels(probs, self.answers[rows])


def distances(probs: Tensor, human: Tensor) -> dict[str, Tensor]:
    """(N,) each: |p - h|_2, total variation, and KL(h || p) in nats."""
    probs, human = probs.double(), human.double()
    # An answer that was given and predicted to be impossible makes the divergence infinite, and it says so.
    divergence = torch.where(human > 0, human * (human.log() - probs.log()), 0)
    return {
        "l2": (probs - human).norm(dim=1),
        "tv": 0.5 * (probs - human).abs().sum(dim=1),
        "kl": divergence.sum(dim=1),
    }


def distance_row(name: str, view: str, probs: Tensor, human: Tensor) -> Row:
    """Mean distances with their standard errors over images."""
    row: Row = {"name": name, "view": view, "n": len(probs)}
    for measure, values in distances(probs, human).items():
        row |= {measure: float(values.mean()), f"{measure}_se": float(values.std()) / math.sqrt(len(values))}
    return row


def reference_rows(labels: Tensor, human: HumanLabels, *, seed: int = 0) -> list[Row]:
    """What the distances mean: for the label alone, and for as many other people (resampled answers)."""
    one_hot = torch.nn.functional.one_hot(labels, human.probs.shape[1]).double()
    generator = torch.Generator().manual_seed(seed)
    # Other people, drawn from the answers: the mean over classes of a multinomial of as many draws.
    most = int(human.answers.max())
    picks = torch.multinomial(human.probs, most, replacement=True, generator=generator)
    counted = torch.arange(most)[None, :] < human.answers[:, None]
    others = torch.zeros_like(human.probs).scatter_add_(1, picks, counted.double()) / human.answers[:, None]
    return [
        distance_row("the label alone", "", one_hot, human.probs),
        distance_row("as many other people", "", others, human.probs),
    ]


def run_views(folder: Path) -> tuple[str, dict[str, Predictions]]:
    """A run's label and its test predictions as trained, after temperature and, where its loss has one, the link."""
    record = Record.load(folder)
    val, test = (Predictions.load(folder / record.files[split]) for split in ("val", "test"))
    run = RunId.of_record(record)
    loss = make_loss(run.loss, **record.recipe["loss_options"])
    views = {"as trained": test}
    for view, method, options in (("temperature", "temperature", {}), ("link", "link", {"loss": loss})):
        try:
            fitted = make_calibrator(method, **options).fit(val.logits, val.labels)
        except InputError:
            continue  # a loss without a link
        views[view] = test.with_logits(fitted.log_probs(test.logits))
    return f"{run.loss_label}, {run.recipe}, seed {run.seed}", views


def human_rows(
    human: HumanLabels, *, predictions: Iterable[str | Path] = (), runs: Iterable[str | Path] = ()
) -> list[Row]:
    """The distances of every file of predictions and of every run, after the two references."""
    found: list[tuple[str, str, Predictions]] = [(Path(p).stem, "", Predictions.load(p)) for p in predictions]
    for folder in find_runs(runs):
        if Record.load(folder).status == "finished":
            name, views = run_views(folder)
            found += [(name, view, test) for view, test in views.items()]
    if not found:
        raise InputError(
            "nothing to judge: give --predictions FILE of the CIFAR-10 test set, or --runs DIR of CIFAR-10 runs"
        )
    first = found[0][2]
    rows = reference_rows(first.labels, human.of(first))
    return rows + [distance_row(name, view, p.probs, human.of(p).probs) for name, view, p in found]


def human_table(rows: Sequence[Row]) -> Table:
    """Mean distances with 95 % intervals over images."""
    table = Table(
        "Distance to the human answers (CIFAR-10H), mean over images", ["prediction", "view", "L2", "TV", "KL"]
    )
    lines = []
    for row in rows:
        known = {m: math.isfinite(row[m]) for m in MEASURES}
        texts = [f"{row[m]:.4f} ± {1.96 * row[f'{m}_se']:.4f}" if known[m] else "infinite" for m in MEASURES]
        lines.append([Cell(row["name"]), Cell(row["view"]), *map(Cell, texts)])
    table.sections.append(("", lines))
    table.caption = f"{rows[-1]['n']} images; ± is the 95 % interval over images. KL(answers || prediction) in nats."
    return table
