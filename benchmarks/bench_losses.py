"""Forward and backward of every loss against `F.cross_entropy`.

    python benchmarks/bench_losses.py --record

Promise: BSCE-GRA within 1.5x of cross-entropy at (8192, 1000). At (128, 10) the extra cost is printed in microseconds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import Report, arguments, interleaved, microseconds

from calgrad.losses import LOSSES, make_loss


def step(loss, logits: torch.Tensor, labels: torch.Tensor):
    def work():
        logits.grad = None
        loss(logits, labels).backward()

    return work


def main() -> None:
    options = arguments(__doc__).parse_args()
    torch.set_num_threads(options.threads)
    report = Report("losses")

    logits = torch.randn(8192, 1000, requires_grad=True)
    labels = torch.randint(0, 1000, (8192,))
    make_loss("ce")(logits, labels).backward()
    ours, logits.grad = logits.grad, None
    F.cross_entropy(logits, labels).backward()
    assert logits.grad is not None
    torch.testing.assert_close(ours, logits.grad)

    names = ["ce", "focal", "focal-gra", "flsd53-gra", "dual-gra", "bsce", "bsce-gra", "brier"]
    contenders = {"F.cross_entropy": step(F.cross_entropy, logits, labels)}
    contenders |= {name: step(make_loss(name), logits, labels) for name in names}
    seconds = interleaved(contenders, repeats=2 * options.repeats)
    for name, value in seconds.items():
        report.add("8192x1000 forward+backward", name, value)
    ratio = seconds["bsce-gra"] / seconds["F.cross_entropy"]
    report.add("8192x1000 forward+backward", "bsce-gra / F.cross_entropy", ratio, "ratio")
    report.promise(f"BSCE-GRA within 1.5x of F.cross_entropy at 8192x1000 ({ratio:.2f}x)", ratio <= 1.5)

    torch.set_num_threads(1)  # so small a batch is one core's work
    small = torch.randn(128, 10, requires_grad=True)
    targets = torch.randint(0, 10, (128,))
    base = microseconds(step(F.cross_entropy, small, targets))
    report.add("128x10 forward+backward", "F.cross_entropy", base, "us")
    for name in LOSSES:
        if name == "consistency-gra":  # takes a third argument that a model provides
            continue
        extra = microseconds(step(make_loss(name), small, targets)) - base
        report.add("128x10 forward+backward", f"{name} beyond F.cross_entropy", extra, "us")
    report.finish(options.record)


if __name__ == "__main__":
    main()
