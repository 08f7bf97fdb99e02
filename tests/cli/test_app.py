"""The frame around the commands: help, exit codes, what goes to which stream, and how fast it starts."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings

import pytest
import typer
from typer.testing import CliRunner

from calgrad import __version__
from calgrad.checks import CalgradError, FileError, InputError
from calgrad.cli import app as application
from calgrad.cli.app import COMMANDS, build, run


def test_help_lists_every_command_with_its_line(capsys):
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == shown
    for name, (_, summary) in COMMANDS.items():
        assert name in shown
        assert " ".join(summary.split()[:3]) in shown


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_itself_with_an_example(name):
    result = CliRunner().invoke(build(name), [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Example" in result.output or name == "data"


def test_every_module_registers_the_commands_that_the_list_promises():
    registered: dict[str, str] = {}
    for module in {module for module, _ in COMMANDS.values()}:
        app = typer.Typer()
        importlib.import_module(f"calgrad.cli.{module}").register(app)
        names = [info.name for info in app.registered_commands] + [info.name for info in app.registered_groups]
        registered |= dict.fromkeys(names, module)
    assert registered == {name: module for name, (module, _) in COMMANDS.items()}


def test_the_full_application_is_there_for_other_tools():
    result = CliRunner().invoke(application.app, ["evaluate", "example", "--json", "--bootstrap", "0"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["n"] == 997
    with pytest.raises(AttributeError):
        application.nothing  # noqa: B018


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"calgrad {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evalute"], "Did you mean 'evaluate'"),
        (["evaluate"], "Missing argument"),
        (["evaluate", "example", "--nonsense"], "No such option: --nonsense"),
        (["evaluate", "example", "--bins", "0"], "--bins"),
        (["evaluate", "example", "--bins", "many"], "--bins"),
        (["evaluate", "absent.npz"], "absent.npz does not exist"),
        (["evaluate", "model.pt"], "are read from .npz"),
        (["calibrate", "example-val", "example-test", "-m", "temprature"], "Did you mean 'temperature'"),
    ],
)
def test_usage_errors_and_bad_files_are_one_line_on_stderr_and_exit_2(capsys, arguments, message):
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("bad\n  value"), 2, "error: bad value"),
        (FileError("bad file"), 2, "error: bad file"),
        (CalgradError("it diverged"), 1, "error: it diverged"),
        (RuntimeError("surprise"), 1, "error: RuntimeError: surprise (CALGRAD_DEBUG=1 shows where)"),
        (ModuleNotFoundError("No module named 'timm'", name="timm"), 1, "error: timm is not installed"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(7), 7, ""),
    ],
)
def test_what_becomes_of_an_error(monkeypatch, capsys, error, code, message):
    def fails():
        raise error

    app = typer.Typer()
    app.command("other")(lambda: None)
    app.command("work")(fails)
    monkeypatch.setattr(application, "build", lambda wanted: app)
    monkeypatch.delenv("CALGRAD_DEBUG", raising=False)
    assert run(["work"]) == code
    assert capsys.readouterr().err.startswith(message)
    if code == 1:
        monkeypatch.setenv("CALGRAD_DEBUG", "1")
        with pytest.raises(type(error)):
            run(["work"])


def test_a_warning_is_one_line_on_stderr(monkeypatch, capsys):
    app = typer.Typer()
    app.command("other")(lambda: None)
    app.command("work")(lambda: warnings.warn("watch\nout", stacklevel=1))
    monkeypatch.setattr(application, "build", lambda wanted: app)
    assert run(["work"]) == 0
    assert capsys.readouterr().err == "warning: watch out\n"


def test_help_needs_nothing_slow():
    code = (
        "import sys; from calgrad.cli.app import run; run(['--help']); slow = ['torch', 'numpy', 'sklearn', 'pyarrow'];"
        "print([name for name in slow if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_the_installed_program(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "calgrad"]
    done = subprocess.run([*command, "evaluate", "example", "--json"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert done.stderr == ""
    assert round(json.loads(done.stdout)["ece"], 4) == 0.0586
    (tmp_path / "p.npz").write_bytes(b"\x80\x04nothing to run")
    done = subprocess.run([*command, "evaluate", tmp_path / "p.npz"], capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "pickle" in done.stderr
    assert "Traceback" not in done.stderr
