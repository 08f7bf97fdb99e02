"""The application: which commands there are, and what becomes of their errors.

A command is a module of this package with `register(app)`, and a line in COMMANDS. Only the module of the command that
was asked for is imported, so that `calgrad --help` needs neither torch nor anything else that is slow.

Exit codes: 0 fine; 1 the work failed; 2 a usage error, bad input or a bad file; 130 interrupted; 143 terminated. An
error is one line on stderr; CALGRAD_DEBUG=1 shows the traceback.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from calgrad._version import __version__

COMMANDS = {
    "evaluate": ("evaluate", "Measure how far the probabilities in a file can be believed."),
    "calibrate": ("calibrate", "Repair probabilities: fit on validation, apply to test, compare before and after."),
    "paper": ("paper", "The paper's tables and figures, ours beside the published numbers."),
    "report": ("report", "Make one self-contained page: can I believe this model, where is it wrong, what fixes it."),
    "compare": ("compare", "Train several losses over several seeds and say which one is calibrated best."),
    "train": ("train", "Train a network by a recipe; a killed run goes on from its last checkpoint."),
    "sweep": ("sweep", "Make a grid of runs on this machine or on Ray; only what is missing is made."),
    "search": ("search", "Choose gamma and beta of a loss on validation; hopeless trials are stopped early."),
    "predict": ("predict", "Write a trained network's logits over a data set."),
    "losses": ("tables", "List the losses, with their formulas."),
    "calibrators": ("tables", "List the post-hoc calibrators, with their formulas."),
    "data": ("data", "List, download and check data sets."),
    "doctor": ("doctor", "Show versions, devices and optional extras."),
}
"""Name -> (module in this package, one line of help)."""

HELP = "Classifiers whose probabilities can be believed: measure, repair, train, compare."
EPILOG = (
    "Try it: calgrad evaluate example   (a shipped file: an over-confident network on scikit-learn's digits)\n\n"
    "Then: calgrad calibrate example-val example-test --method temperature"
)


def build(wanted: str | None = None) -> typer.Typer:
    """The application with the module of the command `wanted`, or with all of them where it is None."""
    app = typer.Typer(
        name="calgrad",
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=HELP)(_options)
    registered: set[str] = set()
    for name, (module, summary) in COMMANDS.items():
        if wanted is not None and COMMANDS.get(wanted, ("",))[0] != module:
            app.command(name, help=summary)(_stub)
        elif module not in registered:
            registered.add(module)
            importlib.import_module(f"calgrad.cli.{module}").register(app)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed, not raised."""
    arguments = list(arguments) or ["--help"]
    words = [word for word in arguments if not word.startswith("-")]
    completing = "_CALGRAD_COMPLETE" in os.environ
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            warnings.filterwarnings("always", category=UserWarning, module="calgrad")
            app = build(None if completing else next(iter(words), ""))
            with _terminable():
                code = app(arguments, prog_name="calgrad", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return 141
    except Terminated:
        print("terminated", file=sys.stderr)
        return 128 + signal.SIGTERM
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("CALGRAD_DEBUG"):
            raise
        text, code = _explain(error)
        print("error: " + " ".join(text.split()), file=sys.stderr)
        return code


class Terminated(BaseException):
    """SIGTERM, raised where the work stands, so that half-written files are removed and workers end."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Within the block, SIGTERM is an exception. Training has handlers of its own, which write a checkpoint."""

    def end(*_: Any) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _explain(error: Exception) -> tuple[str, int]:
    """The line to print and the exit code."""
    if hasattr(error, "format_message"):  # typer's own: an unknown option, a missing argument
        where = getattr(getattr(error, "ctx", None), "command_path", "calgrad")
        return f"{error.format_message()} (see: {where} --help)", 2
    if "calgrad.checks" in sys.modules:
        from calgrad.checks import CalgradError, FileError, InputError

        if isinstance(error, (FileError, InputError)):
            return str(error), 2
        if isinstance(error, CalgradError):
            return str(error), 1
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("calgrad"):
        return f"{error.name} is not installed: pip install {error.name}, or calgrad[all] for every extra", 1
    return f"{type(error).__name__}: {error} (CALGRAD_DEBUG=1 shows where)", 1


def _show_warning(message: Warning | str, *unused: Any) -> None:
    print("warning: " + " ".join(str(message).split()), file=sys.stderr)


def _stub() -> None:
    """Stands in for a command that was not asked for, so that the help can list it."""


def _show_version(asked: bool) -> None:
    if asked:
        print(f"calgrad {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    """What stands before the command."""


def __getattr__(name: str) -> Any:
    if name == "app":
        return build()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
