"""The answer in words. Each sentence is made from numbers that stand beside it on the page.

yes      no test can tell the model from a calibrated one, and the test set is large enough to have noticed
unknown  the same, but so few samples would hide an error of five points as well
nearly   miscalibrated beyond chance, by less than a point
no       miscalibrated beyond chance, by more
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from calgrad.metrics import Evaluation

LEVEL = 0.05
SMALL = 0.01
BLIND = 0.05
TAGS = {"yes": "calibrated", "unknown": "too few samples", "nearly": "nearly calibrated"}


@dataclass(frozen=True)
class Verdict:
    """A level, one line, and the sentences that back it."""

    level: str
    tag: str
    headline: str
    sentences: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python, for JSON."""
        return asdict(self)


def judge(found: Evaluation, confidence: Tensor, is_correct: Tensor) -> Verdict:
    """Say in words whether a model's confidence can be believed."""
    level = _level(found)
    interval = found.ece_interval
    between = f" (95 % interval {100 * interval.low:.2f} to {100 * interval.high:.2f})" if interval else ""
    sentences = [
        f"On {found.n:,} samples it says {_percent(found.confidence)} on average and is right on "
        f"{_percent(found.accuracy)}.",
        f"Its ECE is {_percent(found.ece)}{between}. A perfectly calibrated model with the same confidences would show "
        f"{_percent(found.floor.mean)} by chance, and less than {_percent(found.floor.high)} in 95 of 100 test sets; one "
        f"as large as this has a chance of p {_p(found.p_value)}.",
        *_at_the_top(confidence, is_correct),
    ]
    return Verdict(level, _tag(found, level), _headline(found, level), sentences)


def _level(found: Evaluation) -> str:
    if found.p_value >= LEVEL:
        return "unknown" if found.floor.high > BLIND else "yes"
    return "nearly" if found.ece - found.floor.mean < SMALL else "no"


def direction(found: Evaluation) -> str:
    """over, under, or both: whether the confidence errs to one side, or to both so that the sides cancel."""
    if abs(found.overconfidence) < 0.5 * found.ece:
        return "both"
    return "over" if found.overconfidence > 0 else "under"


def _headline(found: Evaluation, level: str) -> str:
    if level == "yes":
        return "Yes. No test here can tell it from a calibrated model."
    if level == "unknown":
        return (
            f"It cannot be told from calibrated, but with {found.n:,} samples an error of "
            f"{_percent(found.floor.high, 1)} would look the same."
        )
    where = direction(found)
    if where == "both":
        how = f"it is off by {_points(found.ece)} on average, too confident in some places and too shy in others"
    else:
        how = f"it is {where}-confident by {_points(abs(found.overconfidence))} on average"
    return f"Nearly: {how}, which is more than chance." if level == "nearly" else f"No: {how}."


def _tag(found: Evaluation, level: str) -> str:
    if level in TAGS:
        return TAGS[level]
    where = direction(found)
    return "miscalibrated" if where == "both" else f"{where}-confident"


def _at_the_top(confidence: Tensor, is_correct: Tensor) -> list[str]:
    """What its most confident predictions are worth: the sentence people remember."""
    for threshold in (0.99, 0.95, 0.9, 0.8):
        chosen = confidence >= threshold
        count = int(chosen.sum())
        if count >= max(30, 0.05 * len(confidence)):
            said, right = float(confidence[chosen].double().mean()), float(is_correct[chosen].double().mean())
            wrong = count - int(is_correct[chosen].sum())
            return [
                f"Where it says {100 * threshold:.0f} % or more ({_percent(count / len(confidence), 0)} of the samples, "
                f"{_percent(said)} on average) it is right on {_percent(right)}: "
                f"{_many(wrong)} where its confidence promises {count * (1 - said):,.0f}."
            ]
    return []


def _percent(x: float, digits: int = 2) -> str:
    return f"{100 * x:.{digits}f} %"


def _points(x: float) -> str:
    return f"{100 * x:.2f} points"


def _many(mistakes: int) -> str:
    return f"{mistakes:,} mistake{'' if mistakes == 1 else 's'}"


def _p(p_value: float) -> str:
    # A p-value by simulation is never below 1 / (1 + draws).
    return "≤ 0.001" if p_value < 0.0015 else f"= {p_value:.3f}"
