"""A recipe: all that repeats a run but the seed.

One frozen dataclass. Each field carries its one-line documentation, which is also what `calgrad train --help` and
docs/training.md show; a YAML file holds the same names. Unknown keys are refused with the nearest known one, and
every value is checked when the recipe is made, so that a run of hours never dies of a typing error in its last epoch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calgrad.checks import FileError, InputError, at_least, one_of, positive_int, unknown_name
from calgrad.files import read_yaml

OPTIMISERS = ("sgd", "nesterov", "adam", "adamw")
SCHEDULES = ("constant", "steps", "cosine", "linear", "one-cycle")
PRECISIONS = ("fp32", "bf16")
AUGMENTATIONS = ("none", "crop-flip", "augmix")
COMPILE = ("auto", "none", "compile", "graph", "graph-tuned")

# These name or pace a run, or say how fast it is computed; they do not change what is computed.
NOT_IN_FINGERPRINT = frozenset({"name", "seeds", "checkpoint_every", "checkpoint_minutes", "compile", "workers"})


def _f(doc: str, default: Any = dataclasses.MISSING, **extra: Any) -> Any:
    return field(default=default, metadata={"doc": doc}, **extra)


@dataclass(frozen=True)
class Recipe:
    """All that repeats a run but the seed; see each field's `doc`, or `describe_fields()`.

    >>> recipe = Recipe(data="digits", model="mlp", loss="bsce-gra", loss_options={"gamma": 4})
    >>> recipe.replace(epochs=3).epochs
    3
    """

    data: str = _f("data set: a name that `calgrad data list` shows, or folder:PATH")
    model: str = _f("network: mlp, cnn, resnet50, wrn26-10, ... or timm:NAME, hf:NAME")
    name: str = _f("what the recipe is called in tables and folder names", "")
    split: str = _f("how validation is taken out of train: seeded, or paper (the published indices)", "seeded")
    split_seed: int = _f("seed of a seeded split; the same split for every training seed", 0)
    val_size: int | None = _f("validation samples; none: the data set's own default", None)
    image_size: int | None = _f("side of the images of imagenet and folders; none: 224", None)
    model_options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"doc": "options for the network, e.g. {pretrained: true}"}
    )
    loss: str = _f("loss: a name `calgrad losses` lists", "ce")
    loss_options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"doc": "options of the loss, e.g. {gamma: 4, beta: 2}"}
    )
    reduction: str = _f("how the batch's losses become one number: mean, or sum (as published)", "mean")
    clip: float | None = _f("largest gradient norm; larger gradients are scaled down to it; none: no clipping", None)
    optimiser: str = _f("sgd, nesterov, adam or adamw", "sgd")
    lr: float = _f("peak learning rate", 0.1)
    momentum: float = _f("momentum of sgd and nesterov; first beta of adam and adamw", 0.9)
    weight_decay: float = _f("weight decay, on every parameter", 5e-4)
    schedule: str = _f("constant, steps, cosine, linear (to zero) or one-cycle (up, then down to zero)", "constant")
    milestones: tuple[int, ...] = _f("epochs at which `steps` multiplies the learning rate by `lr_drop`", ())
    lr_drop: float = _f("what `steps` multiplies by", 0.1)
    warmup: float = _f("epochs of linear warm-up from zero; of one-cycle, the length of the way up", 0.0)
    epochs: int = _f("passes over the training set", 1)
    batch: int = _f("samples a step, over all processes; the last batch of an epoch may be smaller", 128)
    augment: str = _f("none, crop-flip (the data set's usual crop and mirror) or augmix (both, then AugMix)", "none")
    resize: int | None = _f("side to which the device scales images for the network; none: as they are", None)
    mixup: float | None = _f("mixup: both parameters of its Beta distribution; none: no mixup", None)
    precision: str = _f("fp32, or bf16 (autocast; weights, head and loss stay fp32)", "fp32")
    ema: float | None = _f("decay of the exponential moving average that is evaluated and saved; none: off", None)
    compile: str = _f("auto (graph on CUDA, none elsewhere), none, compile, graph or graph-tuned", "auto")
    workers: int = _f("processes that decode images, for data sets too large for the device", 8)
    eval_every: int = _f("epochs between validations; the last epoch is always validated", 1)
    checkpoint_every: int = _f("epochs between checkpoints; 0: only by time and on a signal", 1)
    checkpoint_minutes: float = _f("minutes after which a checkpoint is written even within an epoch", 10.0)
    gradient_epochs: tuple[int, ...] = _f(
        "epochs after which gradient norms by sample (last layer) and test predictions are saved", ()
    )
    seeds: tuple[int, ...] = _f("the seeds that make a full repetition", (1,))

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for f in dataclasses.fields(self):
            object.__setattr__(self, f.name, _coerced(f.name, getattr(self, f.name), hints[f.name]))
        self._check_choices()
        self._check_numbers()

    def _check_choices(self) -> None:
        one_of("split", self.split, ("seeded", "paper"))
        one_of("reduction", self.reduction, ("mean", "sum"))
        one_of("optimiser", self.optimiser, OPTIMISERS)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("precision", self.precision, PRECISIONS)
        one_of("augment", self.augment, AUGMENTATIONS)
        one_of("compile", self.compile, COMPILE)
        if "reduction" in self.loss_options:
            raise InputError("`reduction` is a key of the recipe itself, not of `loss_options`")
        if self.milestones and self.schedule != "steps":
            raise InputError(f"`milestones` belong to schedule 'steps', not to {self.schedule!r}; leave them out")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise InputError(f"`milestones` must increase, got {list(self.milestones)}")
        if not self.seeds:
            raise InputError("`seeds` must name at least one seed")

    def _check_numbers(self) -> None:
        for name in ("epochs", "batch", "eval_every"):
            positive_int(name, getattr(self, name))
        for name in ("lr", "weight_decay", "warmup", "lr_drop", "workers", "checkpoint_every"):
            at_least(name, getattr(self, name), 0)
        at_least("checkpoint_minutes", self.checkpoint_minutes, 0)
        for name in ("momentum", "ema"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise InputError(f"`{name}` must lie in [0, 1), got {value!r}")
        for name in ("image_size", "resize"):
            if getattr(self, name) is not None:
                positive_int(name, getattr(self, name))
        for name in ("clip", "mixup"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"`{name}` must be above zero, or none to switch it off, got {value!r}")
        if self.warmup > self.epochs:
            raise InputError(f"`warmup` ({self.warmup:g} epochs) must not outlast the run ({self.epochs} epochs)")
        late = [epoch for epoch in self.gradient_epochs if not 1 <= epoch <= self.epochs]
        if late:
            raise InputError(f"`gradient_epochs` must lie in 1..{self.epochs} (epochs done), got {late}")

    # ------------------------------------------------------------------------------------------------- in and out

    def replace(self, **changes: Any) -> Recipe:
        """A copy with some fields changed, checked like any recipe."""
        return Recipe.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON and YAML types, in the order of the fields."""
        plain: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            plain[f.name] = (
                list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            )
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """From a mapping of field names; an unknown key is an error that names the nearest known one."""
        known = [f.name for f in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                raise unknown_name("recipe key", str(key), known)
        for needed in ("data", "model"):
            if needed not in values:
                raise InputError(f"a recipe needs `{needed}`: " + _docs(cls)[needed])
        return cls(**values)

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a YAML file; `name` defaults to the file's name."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise FileError(f"cannot read the recipe {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise FileError(f"{path} is not YAML: {error}") from error
        values = read_yaml(text, str(path))
        if not isinstance(values, dict):
            raise FileError(f"{path} must hold `key: value` lines, got {type(values).__name__}")
        try:
            return cls.from_dict({"name": path.stem, **values})
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def to_yaml(self) -> str:
        """The whole recipe as YAML; `Recipe.load` of it gives an equal recipe."""
        import yaml

        return str(yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None, width=100))

    def fingerprint(self) -> str:
        """A short hash of everything that decides the numbers of a run, seed aside."""
        decisive = {k: v for k, v in self.to_dict().items() if k not in NOT_IN_FINGERPRINT}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))


def describe_fields() -> dict[str, str]:
    """Each field's one-line documentation, by name; what the command line's help is made of."""
    return _docs(Recipe)


def parse_assignment(text: str) -> tuple[str, Any]:
    """`key=value` from a command line: the value is read as YAML, so `lr=1e-3`, `ema=none` and `seeds=[1,2]` work."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"expected key=value, got {text!r}; for example --set epochs=5")
    parsed = read_yaml(value, f"{key.strip()}=...")
    return key.strip(), None if isinstance(parsed, str) and parsed.lower() == "none" else parsed


def _docs(cls: type) -> dict[str, str]:
    return {f.name: f.metadata["doc"] for f in dataclasses.fields(cls)}


def _coerced(name: str, value: Any, hint: Any) -> Any:
    """`value` as the field's type, or an error in words. Only lossless changes: 1 -> 1.0, "1e-3" -> 0.001."""
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in allowed:
        return None
    kind = next(a for a in allowed if a is not type(None))
    origin = typing.get_origin(kind) or kind
    wanted = {str: "text", int: "a whole number", float: "a number", tuple: "a list of whole numbers"}.get(
        origin, "a mapping"
    )
    refused = InputError(f"`{name}` must be {wanted}{' or none' if len(allowed) > 1 else ''}, got {value!r}")
    if isinstance(value, bool):
        raise refused
    if origin is float:
        try:
            return float(value) if isinstance(value, (int, float, str)) else _raise(refused)
        except ValueError:  # YAML 1.1 reads 1e-3 as text: accept it, refuse other text
            raise refused from None
    if origin is tuple:
        entries = [value] if isinstance(value, int) else value
        if not isinstance(entries, (list, tuple)) or any(type(e) is not int for e in entries):
            raise refused
        return tuple(entries)
    if origin is int and type(value) is int:
        return value
    if origin is str and isinstance(value, str):
        return value
    if origin is Mapping and isinstance(value, Mapping) and all(isinstance(k, str) for k in value):
        return dict(value)
    raise refused


def _raise(error: InputError) -> typing.NoReturn:
    raise error
