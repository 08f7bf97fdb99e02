"""A page that follows a training: looked at again every few seconds, rebuilt when a file changed, served to this machine.

The server gives out two things from memory, the page and its data, and reads no file for a request; it listens on
127.0.0.1 alone and answers only requests that name this host, so that no other site's script can read it. A run that is
half written is named on the page and looked at again; whatever goes wrong, the last good page stays.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from calgrad.checks import CalgradError, FileError
from calgrad.files import write_text
from calgrad.report.document import Report
from calgrad.report.html import page, presentable
from calgrad.report.sources import run_folders

HOST = "127.0.0.1"
SECONDS = 3.0


class Watch:
    """Runs and files, and the newest page about them.

    Args:
        paths: what to look at.
        build: makes the report; called again whenever something changed.
        out: where the page is also written, if anywhere.
        seconds: between two looks.
    """

    def __init__(
        self, paths: Sequence[Path], build: Callable[[], Report], *, out: Path | None = None, seconds: float = SECONDS
    ) -> None:
        self.paths, self.build, self.out, self.seconds = list(paths), build, out, seconds
        self.version = 0
        self._seen: Any = None
        self._document: dict[str, Any] = {}
        self._problem = ""
        self._lock = threading.Lock()

    def look(self) -> bool:
        """Look once; True if there is something new to show."""
        seen: Any = signature(self.paths)
        if seen == self._seen and self.version:
            return False
        try:
            report, problem = self.build(), ""
        except (CalgradError, OSError, ValueError, KeyError) as error:
            # A file that changed while it was read, most often; the next look will do.
            if not self.version:
                raise
            report, problem = Report(self._document), f"{type(error).__name__}: {error}"
            seen = None
        if problem and problem == self._problem:
            return False
        problems = [p for p in report.document["problems"] if p != self._problem] + ([problem] if problem else [])
        with self._lock:
            self.version += 1
            live = {"version": self.version, "seconds": self.seconds}
            self._document = {**report.document, "live": live, "problems": problems}
            self._seen, self._problem = seen, problem
        if self.out is not None:
            write_text(self.out, replace(report, document={**self._document, "live": None}).html())
        return True

    def follow(self, stop: threading.Event, *, say: Callable[[str], None] = lambda text: None) -> None:
        """Look again and again until `stop` is set."""
        while not stop.wait(self.seconds):
            try:
                if self.look():
                    say(f"refreshed ({self.version})")
            except Exception as error:  # a watcher must outlive whatever it watches
                say(f"{type(error).__name__}: {error}")

    def html(self) -> str:
        """The newest page."""
        with self._lock:
            document = self._document
        return page(document)

    def data(self, after: int) -> str | None:
        """The newest data as JSON, or None if version `after` is the newest."""
        with self._lock:
            document, version = self._document, self.version
        return None if after == version else json.dumps(presentable(document), allow_nan=False, separators=(",", ":"))


def signature(paths: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every file that a report reads; equal as long as nothing changed."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        for folder in run_folders(path):
            try:
                files += [
                    folder / e.name for e in os.scandir(folder) if e.name.endswith((".json", ".npz", ".safetensors"))
                ]
            except OSError:
                continue
    found = []
    for file in sorted(files):
        try:
            status = file.stat()
        except OSError:
            continue
        found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(found)


def make_server(watch: Watch, *, port: int = 0) -> ThreadingHTTPServer:
    """A server for a watch, on this machine only; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "calgrad", ""

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if not self._is_for_us():
                self._answer(403, "text/plain", "this page is for this machine only\n")
            elif url.path in ("/", "/index.html"):
                self._answer(200, "text/html", watch.html())
            elif url.path == "/data.json":
                after = parse_qs(url.query).get("after", ["0"])[0]
                text = watch.data(int(after) if after.isdecimal() and len(after) < 12 else 0)
                self._answer(200 if text is not None else 204, "application/json", text or "")
            else:
                self._answer(404, "text/plain", "nothing here\n")

        def _is_for_us(self) -> bool:
            # A foreign name that resolves to this machine (DNS rebinding) must not read the page.
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            return host in (HOST, "localhost")

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise FileError(
            f"port {port} cannot be used: {error.strerror}; choose another with --port, or 0 for a free one"
        ) from error
    server.daemon_threads = True
    return server


HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
