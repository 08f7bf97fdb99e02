"""`calgrad report`: a page that a person can read, from files of predictions or from runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calgrad.cli.inputs import resolve
from calgrad.cli.output import JSON_HELP, note, print_json, progress, warn

if TYPE_CHECKING:
    from calgrad.report.document import Report

SOURCES_HELP = (
    "Files of predictions (.npz, .safetensors, .csv, .parquet), run folders, or folders of runs; `example` is shipped."
)
OUT_HELP = "The page to write [report.html; with --watch: none]."
VAL_HELP = "Validation predictions that repairs are fitted on, one for each file in the same order; runs bring theirs."
NAMES_HELP = "Names of the classes: a text file with a name a line, or names separated by commas."
IMAGES_HELP = "Thumbnails for mistakes: a folder of files named by id, a .npy or a .npz with `images` in row order."
WATCH_HELP = "Serve the page on this machine and refresh it while runs go on; stop with Ctrl+C."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("report")(report_command)


def report_command(
    sources: Annotated[list[str], typer.Argument(metavar="RUN_OR_FILE", help=SOURCES_HELP)],
    out: Annotated[Path | None, typer.Option("--out", "-o", help=OUT_HELP)] = None,
    val: Annotated[list[str] | None, typer.Option("--val", help=VAL_HELP)] = None,
    title: Annotated[str, typer.Option(help="The page's title.")] = "",
    class_names: Annotated[str, typer.Option("--class-names", help=NAMES_HELP)] = "",
    images: Annotated[Path | None, typer.Option("--images", help=IMAGES_HELP)] = None,
    repairs: Annotated[bool, typer.Option("--repairs/--no-repairs", help="Compare post-hoc methods.")] = True,
    methods: Annotated[str, typer.Option(help="Post-hoc methods to compare, by commas [a choice of them].")] = "",
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    watch: Annotated[bool, typer.Option("--watch", help=WATCH_HELP)] = False,
    port: Annotated[int, typer.Option(help="Port of --watch; 0: a free one.", min=0, max=65535)] = 0,
    every: Annotated[float, typer.Option(help="Seconds between two looks of --watch.", min=0.2)] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Make one self-contained page: can I believe this model, where is it wrong, what fixes it, how do models compare.

    The page needs no network and no other file. Without validation predictions, repairs are cross-fitted on the file
    itself.

    Example: calgrad report example --val example-val -o report.html
    """
    from calgrad.report.document import make_report
    from calgrad.report.images import open_images
    from calgrad.report.repairs import METHODS
    from calgrad.report.sources import read_sources

    paths, val_paths = [resolve(name) for name in sources], [resolve(name) for name in val or []]
    names, pictures = _class_names(class_names), open_images(images) if images else None
    chosen = _methods(methods) or METHODS
    options: dict[str, Any] = {"title": title, "images": pictures, "repairs": repairs, "methods": chosen, "seed": seed}

    def build(cache: dict[str, Any] | None = None) -> Report:
        found = read_sources(paths, val=val_paths, class_names=names, lenient=cache is not None)
        with progress("judging", len(found.models)) as advance:
            return make_report(found, cache=cache, on_model=lambda: advance(1), **options)

    if watch:
        _watch(paths, build, out=out, port=port, every=every)
        return
    report = build()
    path = report.save(out or Path("report.html"))
    if as_json:
        verdicts = [{k: m[k] for k in ("name", "n", "verdict", "numbers")} for m in report.document["models"]]
        print_json({"file": str(path), "models": verdicts})
        return
    for model in report.document["models"]:
        print(f"{model['name']}: {model['verdict']['headline']}")
    print(f"{path} ({path.stat().st_size / 1000:,.0f} kB): open it in a browser")


def _watch(paths: list[Path], build: Any, *, out: Path | None, port: int, every: float) -> None:
    from calgrad.report.watch import Watch, make_server

    cache: dict[str, Any] = {}
    watched = Watch(paths, lambda: build(cache), out=out, seconds=every)
    watched.look()
    server = make_server(watched, port=port)
    stop = threading.Event()
    looking = threading.Thread(target=watched.follow, args=(stop,), kwargs={"say": note}, daemon=True)
    looking.start()
    print(f"http://127.0.0.1:{server.server_address[1]}/  (stop with Ctrl+C)", flush=True)
    try:
        server.serve_forever()
    finally:
        stop.set()
        server.server_close()


def _class_names(text: str) -> list[str] | None:
    from calgrad.checks import FileError

    if not text:
        return None
    path = Path(text)
    try:
        if path.is_file():
            return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read as a list of class names: {error}") from error
    if "," not in text:
        warn(f"there is no file {text}; it is taken as the names themselves")
    return [name.strip() for name in text.split(",")]


def _methods(text: str) -> list[str]:
    from calgrad.checks import unknown_name
    from calgrad.posthoc import CALIBRATORS

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in CALIBRATORS:
            raise unknown_name("calibrator", name, CALIBRATORS)
    return names
