"""Experiment trackers behind one small interface: numbers, pictures, and nothing else.

A sink has three methods: `log(metrics, step)`, `figure(name, figure, step)` and `close()`. Anything with these three can
be passed where calgrad takes a sink. The ones here open their file, run or connection when the first number arrives, so
a sink that is never used leaves nothing behind.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, runtime_checkable

from calgrad.checks import InputError, unknown_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class Sink(Protocol):
    """Where numbers and pictures of an experiment go."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Note numbers by name at a step (or epoch)."""

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Keep a picture."""

    def close(self) -> None:
        """Write what is still to be written; nothing may be logged after it."""


class CSVSink:
    """A row `step,name,value` a number in `metrics.csv`, and PNG files beside it; needs nothing installed.

    Args:
        folder: where to write; an existing file is added to.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def _file(self) -> TextIO:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "metrics.csv"
        is_new = not path.exists() or not path.stat().st_size
        file = path.open("a", newline="", encoding="utf-8")
        if is_new:
            file.write("step,name,value\n")
        return file

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Add a row for each number."""
        csv.writer(self._file, lineterminator="\n").writerows((step, name, float(metrics[name])) for name in metrics)
        self._file.flush()

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Write `name-step.png`."""
        path = self.folder / f"{name}-{step}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)

    def close(self) -> None:
        """Close the file, if one was opened."""
        if "_file" in self.__dict__:
            self._file.close()


class TensorBoardSink:
    """Event files for `tensorboard --logdir`.

    Args:
        folder: where to write them.
        writer: an open `SummaryWriter` to use instead; it stays open.
    """

    def __init__(self, folder: str | Path = "tensorboard", *, writer: Any = None) -> None:
        self.folder, self.is_own = Path(folder), writer is None
        if writer is not None:
            self.__dict__["_writer"] = writer

    @cached_property
    def _writer(self) -> Any:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard") from error
        return SummaryWriter(str(self.folder))  # type: ignore[no-untyped-call]

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Add a scalar for each number."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, float(value), step)
        self._writer.flush()

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Add an image."""
        self._writer.add_figure(name, figure, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the writer, if this sink opened it."""
        if self.is_own and "_writer" in self.__dict__:
            self._writer.close()


class MLflowSink:
    """A run of an MLflow experiment.

    Args:
        folder: kept in this folder, as files, unless `uri` or the environment's `MLFLOW_TRACKING_URI` names a server.
        uri: the tracking server.
        experiment: its name; made if there is none.
        run_name: the run's.
        run: (client, run id) of an open run to use instead; it stays open.
    """

    def __init__(
        self,
        folder: str | Path = "mlruns",
        *,
        uri: str | None = None,
        experiment: str = "calgrad",
        run_name: str | None = None,
        run: tuple[Any, str] | None = None,
    ) -> None:
        self.folder, self.uri, self.experiment, self.run_name = Path(folder), uri, experiment, run_name
        self.is_own = run is None
        if run is not None:
            self.__dict__["_run"] = run

    @cached_property
    def _run(self) -> tuple[Any, str]:
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI")
        if uri is None:
            # MLflow has retired its file store for servers and asks for this word; for one run's numbers it still serves.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            uri = self.folder.absolute().as_uri()
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise _missing("mlflow") from error
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(self.experiment)
        identity = found.experiment_id if found is not None else client.create_experiment(self.experiment)
        return client, client.create_run(identity, run_name=self.run_name).info.run_id

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log a metric for each number."""
        client, run = self._run
        for name, value in metrics.items():
            client.log_metric(run, name, float(value), step=step)

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Store `name-step.png` as an artifact."""
        client, run = self._run
        client.log_figure(run, figure, f"{name}-{step}.png")

    def close(self) -> None:
        """End the run, if this sink began it."""
        if self.is_own and "_run" in self.__dict__:
            client, run = self._run
            client.set_terminated(run)


class WandbSink:
    """A Weights & Biases run; offline unless asked otherwise, so nothing leaves the machine until `wandb sync`.

    Args:
        folder: where the offline run is written.
        mode: "offline", "online" or "disabled".
        project: the project's name.
        run: an open run to use instead; it stays open.
        **options: for `wandb.init`, such as `name` and `config`.
    """

    def __init__(
        self,
        folder: str | Path = "wandb",
        *,
        mode: str = "offline",
        project: str = "calgrad",
        run: Any = None,
        **options: Any,
    ) -> None:
        self.folder, self.is_own = Path(folder), run is None
        self.options = {"mode": mode, "project": project, **options}
        if run is not None:
            self.__dict__["_run"] = run

    @cached_property
    def _run(self) -> Any:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb") from error
        self.folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(dir=str(self.folder), **self.options)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log the numbers together."""
        self._run.log({name: float(value) for name, value in metrics.items()}, step=step)

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Log an image."""
        import wandb
        from PIL import Image

        # Drawn here: wandb takes a figure only where pyplot was imported, which these pictures do without.
        drawn = BytesIO()
        figure.savefig(drawn, format="png", dpi=150)
        self._run.log({name: wandb.Image(Image.open(drawn))}, step=step)

    def close(self) -> None:
        """Finish the run, if this sink began it."""
        if self.is_own and "_run" in self.__dict__:
            self._run.finish()


SINKS: dict[str, Callable[..., Sink]] = {
    "csv": CSVSink,
    "tensorboard": TensorBoardSink,
    "mlflow": MLflowSink,
    "wandb": WandbSink,
}
"""Every sink by name."""


def make_sink(name: str, folder: str | Path, **options: Any) -> Sink:
    """The sink of this name, writing into `folder`.

    Args:
        name: a key of `SINKS`.
        folder: where it writes.
        **options: the sink's own.

    Example:
        >>> import tempfile
        >>> from calgrad.integrations.tracking import make_sink
        >>> sink = make_sink("csv", tempfile.mkdtemp())
        >>> sink.log({"ece": 0.012}, step=1)
        >>> sink.close()
    """
    if name not in SINKS:
        raise unknown_name("sink", name, SINKS)
    return SINKS[name](folder, **options)


def each_epoch(sink: Sink) -> Callable[[Mapping[str, Any]], None]:
    """What to pass as `on_epoch` to `calgrad.train.train`: each epoch's numbers go to the sink, `val_ece` as `val/ece`."""

    def listen(entry: Mapping[str, Any]) -> None:
        values = {name: value for name, value in entry.items() if name != "epoch" and isinstance(value, (int, float))}
        sink.log({name.replace("val_", "val/", 1): value for name, value in values.items()}, entry["epoch"])

    return listen


def _missing(extra: str) -> InputError:
    return InputError(f"the sink {extra!r} needs a package that is not installed: pip install 'calgrad[{extra}]'")
