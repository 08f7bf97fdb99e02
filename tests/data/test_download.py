"""Downloads from a server on this machine that knows Range, and can be told to misbehave."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from calgrad.checks import FileError, InputError
from calgrad.data import SPECS, fetch
from calgrad.data.download import download, extract

CONTENT = np.random.default_rng(0).bytes(700_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        content, start = server.content, 0
        requested = self.headers.get("Range")
        server.ranges.append(requested)
        if requested and server.knows_range:
            start = int(requested.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
        elif self.path == "/absent":
            self.send_error(404)
            return
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        self.wfile.write(body[: server.limits.pop(0)] if server.limits else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.content, server.ranges, server.knows_range, server.limits = CONTENT, [], True, []
    server.url = f"http://127.0.0.1:{server.server_port}/file"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_download_arrives_whole_and_reports_progress(server, tmp_path):
    seen = []
    download(server.url, tmp_path / "f", md5=MD5, progress=lambda done, total: seen.append((done, total)))
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)
    assert not (tmp_path / "f.part").exists()


@pytest.mark.parametrize("knows_range", [True, False])
def test_a_broken_download_goes_on(server, tmp_path, knows_range):
    server.knows_range = knows_range
    (tmp_path / "f.part").write_bytes(CONTENT[:300_000])
    download(server.url, tmp_path / "f", md5=MD5)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.ranges == ["bytes=300000-"]


def test_a_connection_that_closes_early_is_resumed_at_once(server, tmp_path):
    server.limits = [200_000, 100_000]
    download(server.url, tmp_path / "f", md5=MD5)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=200000-", "bytes=300000-"]


def test_one_that_keeps_closing_leaves_what_it_got(server, tmp_path):
    server.limits = [100_000, 0, 0, 0]
    with pytest.raises(FileError, match=r"stopped after 100000 bytes.*run it again"):
        download(server.url, tmp_path / "f", md5=MD5)
    assert (tmp_path / "f.part").read_bytes() == CONTENT[:100_000]
    download(server.url, tmp_path / "f", md5=MD5)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_complete_part_is_only_checked(server, tmp_path):
    (tmp_path / "f.part").write_bytes(CONTENT)
    download(server.url, tmp_path / "f", md5=MD5)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    server.content = CONTENT[:-1] + b"x"
    with pytest.raises(FileError, match=f"not {MD5}"):
        download(server.url, tmp_path / "f", md5=MD5)
    assert list(tmp_path.iterdir()) == []


def test_no_such_address(server, tmp_path):
    with pytest.raises(FileError, match="404"):
        download(server.url.replace("/file", "/absent"), tmp_path / "f", md5=MD5)
    assert len(server.ranges) == 1  # a refusal is not asked again


def tar_bytes(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for member, content in members:
            if isinstance(member, str):
                member = tarfile.TarInfo(member)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def zip_bytes(*members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for member, content in members:
            packed.writestr(member, content)
    return out.getvalue()


def link(name, target, kind=tarfile.SYMTYPE):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def zip_link(name):
    member = zipfile.ZipInfo(name)
    member.external_attr = 0o120777 << 16
    return member, b"/etc/passwd"


@pytest.mark.parametrize("packed", [tar_bytes, zip_bytes])
def test_fetch_downloads_checks_and_unpacks(server, tmp_path, monkeypatch, packed):
    server.content = packed(("cifar-10-batches-py/a", b"first"), ("cifar-10-batches-py/b/c", b"second"))
    digest = hashlib.md5(server.content).hexdigest()
    monkeypatch.setitem(SPECS, "cifar10", replace(SPECS["cifar10"], url=server.url, md5=digest))
    folder = fetch("cifar10", tmp_path / "data")
    assert (folder / "a").read_bytes() == b"first"
    assert (folder / "b" / "c").read_bytes() == b"second"
    assert fetch("cifar10", tmp_path / "data") == folder
    assert len(server.ranges) == 1  # it is there: nothing is downloaded again
    (folder / "a").write_bytes(b"damaged")
    fetch("cifar10", tmp_path / "data", force=True)
    assert (folder / "a").read_bytes() == b"first"
    assert len(server.ranges) == 2


@pytest.mark.parametrize(
    "content",
    [
        tar_bytes(("top/a", b"good"), ("../evil", b"x")),
        tar_bytes(("top/a", b"good"), ("top/../../evil", b"x")),
        tar_bytes(("/tmp/evil", b"x")),
        tar_bytes(("top/a", b"good"), link("top/evil", "/etc/passwd")),
        tar_bytes(("top/a", b"good"), link("top/evil", "../../x", tarfile.LNKTYPE)),
        tar_bytes(link("top/evil", "", tarfile.FIFOTYPE)),
        zip_bytes(("top/a", b"good"), ("../evil", b"x")),
        zip_bytes(("top/a", b"good"), ("top/..\\..\\evil", b"x")),
        zip_bytes(("C:/evil", b"x")),
        zip_bytes(("top/a", b"good"), zip_link("top/evil")),
    ],
    ids=range(10),  # an archive holds the second it was made in: as an id it would differ between workers
)
def test_hostile_archives_are_refused_before_anything_is_written(tmp_path, content):
    inner = tmp_path / "in" / "ner"
    inner.mkdir(parents=True)
    (inner / "archive").write_bytes(content)
    with pytest.raises(FileError, match=r"leads out|link"):
        extract(inner / "archive", inner / "top")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["archive", "in", "ner"]


def test_archives_that_cannot_be_unpacked(tmp_path):
    whole = tar_bytes(("top/a", CONTENT))
    for content, message in (
        (whole[:5000], "is it whole"),
        (b"text", "is it whole"),
        (tar_bytes(("x/a", b"")), "no folder"),
    ):
        (tmp_path / "archive").write_bytes(content)
        with pytest.raises(FileError, match=message):
            extract(tmp_path / "archive", tmp_path / "top")
        assert [p.name for p in tmp_path.iterdir()] == ["archive"]


def test_what_has_no_address_cannot_be_fetched(tmp_path):
    for name in ("digits", "imagenet"):
        with pytest.raises(InputError, match="no public download"):
            fetch(name, tmp_path)
