"""Text: which package of Python's standard library does this sentence document?

The text is on every machine that runs this: the docstrings of the standard library. Many sentences give their package
away and some could stand anywhere ("Return True if successful."), so a good classifier must say how sure it is. A bag of
words is trained on few sentences with cross-entropy, which makes it over-confident, and with the paper's loss; both are
repaired on validation sentences. Then the point of it all: answer only where the model is at least 90 % sure, and see
whether as many of those answers are right as it says.

    python examples/text_classification.py
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sysconfig
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

import calgrad
from calgrad import Predictions

PACKAGES = ("asyncio", "ctypes", "distutils", "email", "http", "importlib", "json", "logging", "multiprocessing")
PACKAGES += ("sqlite3", "tkinter", "unittest", "urllib", "wsgiref", "xml", "zipfile")
BUCKETS = 2**14


def sentences(package: Path) -> list[str]:
    """The sentences of a package's docstrings, of four words or more, without the package's own name."""
    found = set()
    for path in sorted(package.rglob("*.py")):
        if "test" in path.parts or "tests" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="ignore"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = " ".join((ast.get_docstring(node) or "").split())
                found |= {s.replace(package.name, " ") for s in re.split(r"(?<=[.:;])\s", text) if len(s.split()) >= 4}
    return sorted(found)


def load(per_class: int) -> tuple[list[Tensor], Tensor, list[str]]:
    """Up to `per_class` sentences of each package that is installed and has enough of them, shuffled."""
    library = Path(sysconfig.get_path("stdlib"))
    kept = {name: texts for name in PACKAGES if len(texts := sentences(library / name)) >= 150}
    pairs = [
        (text, k) for k, texts in enumerate(kept.values()) for text in random.sample(texts, min(per_class, len(texts)))
    ]
    random.shuffle(pairs)
    return [numbered(text) for text, _ in pairs], torch.tensor([k for _, k in pairs]), list(kept)


def numbered(text: str) -> Tensor:
    """Hashed words and pairs of neighbouring words."""
    words = re.findall(r"[a-z_]+", text.lower())
    return torch.tensor([bucket(w) for w in (*words, *map(" ".join, pairwise(words)))], dtype=torch.int64)


def bucket(word: str) -> int:
    """The same on every machine, unlike `hash`."""
    value = 0
    for letter in word:
        value = (31 * value + ord(letter)) % 1_000_000_007
    return value % BUCKETS


class Classifier(nn.Module):
    """Sum of word vectors, then a linear layer: every word adds its evidence."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(BUCKETS, width, mode="sum")
        nn.init.normal_(self.words.weight, std=0.05)
        self.head = nn.Linear(width, classes)

    def forward(self, texts: Sequence[Tensor]) -> Tensor:
        """Logits (N, K)."""
        starts = torch.tensor([0, *(len(text) for text in texts)])[:-1].cumsum(dim=0)
        return self.head(self.words(torch.cat(list(texts)), starts))


def train(texts: Sequence[Tensor], labels: Tensor, classes: int, loss: nn.Module, *, epochs: int) -> Classifier:
    """Adam on batches of 64."""
    torch.manual_seed(0)
    net = Classifier(classes)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.003)
    for _ in range(epochs):
        for chosen in torch.randperm(len(texts)).split(64):
            optimiser.zero_grad()
            loss(net([texts[i] for i in chosen.tolist()]), labels[chosen]).backward()
            optimiser.step()
    return net.eval()


def row(name: str, logits: Tensor, labels: Tensor) -> None:
    """A line of numbers; the last three say what the answers at 90 % and more are worth."""
    found = calgrad.evaluate(Predictions(logits, labels), bootstrap=0)
    confidence, prediction = logits.softmax(dim=1).max(dim=1)
    sure = confidence >= 0.9
    share, says, right = (100 * v.double().mean() for v in (sure, confidence[sure], (prediction == labels)[sure]))
    print(
        f"{name:<15}{100 * found.accuracy:8.1f}%{found.nll:8.3f}{found.brier:8.3f}{100 * found.ece:8.1f}%"
        f"{100 * found.floor.mean:8.1f}%{share:9.1f}%{says:7.1f}%{right:7.1f}%"
    )


def main(epochs: int = 25, per_class: int = 500) -> None:
    """Train with both losses, repair, print."""
    random.seed(0)
    texts, labels, names = load(per_class)
    first, second = int(0.5 * len(texts)), int(0.7 * len(texts))
    parts = {"train": slice(0, first), "val": slice(first, second), "test": slice(second, None)}
    sizes = ", ".join(f"{len(labels[part])} {name}" for name, part in parts.items())
    print(f"sentences of {len(names)} packages ({', '.join(names)}): {sizes}\n")
    print(f"{'':<15}{'accuracy':>9}{'NLL':>8}{'Brier':>8}{'ECE':>9}{'floor':>9}{'sure':>10}{'says':>8}{'right':>8}")
    for name, options in (("ce", {}), ("bsce-gra", {"gamma": 4})):
        loss = calgrad.make_loss(name, **options)
        net = train(texts[parts["train"]], labels[parts["train"]], len(names), loss, epochs=epochs)
        with torch.no_grad():
            val, test = (net(texts[parts[part]]) for part in ("val", "test"))
        row(name, test, labels[parts["test"]])
        for method in ("temperature", "vector"):
            calibrator = calgrad.make_calibrator(method).fit(val, labels[parts["val"]])
            row(f"  {method}", calibrator.log_probs(test), labels[parts["test"]])
    print(
        "\nsure: sentences answered with 90 % confidence or more; what the model says of them, and how many are right"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=25)
    main(parser.parse_args().epochs)
