"""Makes docs/gallery.md and its pictures: `python docs/figures/gallery.py` (about a minute on one core, no network).

Each function below is one picture; its docstring is the text beside it, and its body is the code that the page shows.
Everything can be made again from this repository: `test` and `val` are generated, `runs` are small networks trained on
scikit-learn's digits.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import tempfile
import textwrap
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from calgrad import plot
from calgrad.losses import make_loss, posterior
from calgrad.posthoc import make_calibrator
from calgrad.predictions import Predictions
from calgrad.report.comparison import Candidate, compare
from calgrad.report.document import make_report
from calgrad.report.sources import Model
from calgrad.train import Recipe, Record, train

DOCS = Path(__file__).parents[1]
LOSSES = {"ce": {}, "focal": {}, "bsce-gra": {"gamma": 4}}
SEEDS = (1, 2, 3)
EPOCHS = 40


@dataclass
class Runs:
    """Small networks on the digits, one for each loss and seed, made in a folder that is thrown away."""

    folder: Path

    @cached_property
    def paths(self) -> dict[tuple[str, int], Path]:
        """The run folders by loss and seed."""
        made = {}
        for loss, options in LOSSES.items():
            recipe = Recipe(
                data="digits", model="mlp", loss=loss, loss_options=options, epochs=EPOCHS, lr=0.1, batch=64,
                weight_decay=0.0, gradient_epochs=(1,), checkpoint_every=0,
            )  # fmt: skip
            for seed in SEEDS:
                made[loss, seed] = train(recipe, seed, folder=self.folder / f"{loss}-{seed}", device="cpu", quiet=True)
        return made

    def predictions(self, loss: str, split: str, seed: int) -> Predictions:
        """The predictions of a run."""
        folder = self.paths[loss, seed]
        return Predictions.load(folder / Record.load(folder).files[split])


def shouting(samples: int, seed: int) -> Predictions:
    """A classifier that knows the truth and exaggerates it: labels are drawn from softmax(z), and it says 1.6 z."""
    generator = torch.Generator().manual_seed(seed)
    z = 3 * torch.randn(samples, 10, generator=generator)
    labels = torch.multinomial(z.softmax(1), 1, generator=generator).squeeze(1)
    return Predictions(1.6 * z, labels, meta={"class_names": [f"class {k}" for k in range(10)]})


def focused(samples: int, seed: int) -> Predictions:
    """A classifier that minimises focal loss exactly: labels are drawn from the posterior that its answer encodes."""
    generator = torch.Generator().manual_seed(seed)
    z = 1.5 * torch.randn(samples, 10, generator=generator)
    eta = posterior(make_loss("focal"), z.double().softmax(1))
    return Predictions(z, torch.multinomial(eta, 1, generator=generator).squeeze(1))


# ------------------------------------------------------------------------------------------------------------- pictures


def reliability(test, val, runs):
    """Accuracy with its interval, the gap shaded (hatched: over-confident), in the corner ECE, interval and floor.

    In grey: where a calibrated model's accuracy would lie 95 times in 100.
    """
    return plot.draw_reliability(logits=test.logits, labels=test.labels, title="a network that shouts")


def equal_mass(test, val, runs):
    """Bins of equal mass, and a closer look at where the samples are."""
    data = plot.diagram(logits=test.logits, labels=test.labels, bins=20, scheme="equal-mass")
    return plot.draw_reliability(data, start=0.6)


def smooth(test, val, runs):
    """Without bins: accuracy under a sliding Gaussian whose width is the smooth ECE's."""
    return plot.draw_reliability(logits=test.logits, labels=test.labels, scheme="smooth")


def confidence(test, val, runs):
    """How sure it is when it is right, and when it is wrong. For a calibrated model the two lines coincide."""
    return plot.draw_confidence(logits=test.logits, labels=test.labels)


def classwise(test, val, runs):
    """Each class on its own, the worst first."""
    return plot.draw_classwise(logits=test.logits, labels=test.labels, class_names=test.class_names)


def before_after(test, val, runs):
    """A model that minimises focal loss (`test` and `val` are of such a one) is under-confident.

    A temperature repairs most of it; the link of its loss, which has no parameter, all of it.
    """
    views = {"as trained": test.log_probs}
    for method, options in {"temperature": {}, "link": {"loss": "focal"}}.items():
        views[method] = make_calibrator(method, **options).fit(val.logits, val.labels).log_probs(test.logits)
    return plot.draw_before_after({name: plot.diagram(logits=z, labels=test.labels) for name, z in views.items()})


def risk_coverage(test, val, runs):
    """The error among the most confident predictions, as more and more are taken. Dotted: a random order."""
    noisy = test.logits + 4 * torch.randn(test.logits.shape, generator=torch.Generator().manual_seed(2))
    models = {"clear": test.logits, "noisy": noisy}
    return plot.draw_risk_coverage({n: plot.risk_coverage(logits=z, labels=test.labels) for n, z in models.items()})


def history(test, val, runs):
    """ECE, NLL and accuracy on validation over the epochs, straight from run folders."""
    return plot.draw_history({loss: runs.paths[loss, 1] for loss in ("ce", "focal", "bsce-gra")})


def gradients(test, val, runs):
    """Gradient norm of the last layer against the Brier score of each training sample, after one epoch."""
    files = {loss: runs.paths[loss, 1] / "gradients-epoch-001.npz" for loss in ("ce", "bsce-gra")}
    return plot.draw_gradients({loss: plot.read_gradients(path) for loss, path in files.items()})


def comparison(test, val, runs):
    """Losses compared as intervals over seeds and test samples, not as bars."""
    candidates = []
    for loss, seed in runs.paths:
        own_val, own_test = (runs.predictions(loss, split, seed) for split in ("val", "test"))
        candidates.append(Candidate(loss, seed, make_loss(loss, **LOSSES[loss]), own_val, own_test))
    return plot.draw_comparison(compare(candidates))


def uncertainty(test, val, runs):
    """The weight u of a sample of class 1 over all three-class probabilities, for the Brier weight."""
    return plot.draw_uncertainty("bsce-gra")


def link(test, val, runs):
    """Where the link of focal loss moves what a network says: its minimiser is too shy, the posterior is surer."""
    return plot.draw_link("focal")


PICTURES = [
    reliability, equal_mass, smooth, confidence, classwise, before_after, risk_coverage, history, gradients, comparison,
    uncertainty, link,
]  # fmt: skip


def main(out: Path = DOCS) -> None:
    """Draw every picture and write the page."""
    (out / "img").mkdir(parents=True, exist_ok=True)
    parts = [HEAD]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = Runs(Path(folder))
        for picture in PICTURES:
            make = focused if picture is before_after else shouting
            figure = picture(make(10_000, seed=0), make(5_000, seed=1), runs)
            plot.save(figure, out / "img" / f"gallery_{picture.__name__}")
            parts.append(section(picture))
            print(picture.__name__, flush=True)
    (out / "gallery.md").write_text("\n".join(parts))
    photograph(out / "img" / "gallery_page.png")


def photograph(path: Path) -> None:
    """The page of `calgrad report` on the generated predictions, where a browser is at hand."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("no playwright: the page's picture is left as it is")
        return
    exact = make_calibrator("temperature").fit(shouting(5_000, 1).logits, shouting(5_000, 1).labels)
    models = [Model("a network that shouts", shouting(10_000, 0), shouting(5_000, 1))]
    models.append(
        Model(
            "the same, after temperature", shouting(10_000, 0).with_logits(exact.log_probs(shouting(10_000, 0).logits))
        )
    )
    report = make_report(models).save(Path(tempfile.mkdtemp()) / "report.html")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1180, "height": 1560})
        page.goto(report.as_uri())
        page.screenshot(path=path)
        browser.close()


HEAD = """# Gallery

Every picture of `calgrad.plot`, made by running the code beside it: `python docs/figures/gallery.py`. `test` and `val`
are generated predictions of a network that exaggerates; `runs` are small networks trained on scikit-learn's digits. A
function computes or takes data, returns a matplotlib figure, and draws on `ax=` where the picture has one panel;
`plot.save(figure, "name")` writes PNG and SVG. The page with all of this for your own model is `calgrad report`:
[report.md](report.md).
"""


def section(picture) -> str:
    """A picture's part of the page: text, image, code."""
    name = picture.__name__
    body = inspect.getsource(picture).split('"""', 2)[2].replace("return ", "figure = ")
    text = " ".join(inspect.getdoc(picture).split())
    title = name.replace("_", " ").capitalize()
    return f"## {title}\n\n{text}\n\n![{title}](img/gallery_{name}.png)\n\n```python\n{textwrap.dedent(body).strip()}\n```\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
