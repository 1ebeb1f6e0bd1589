"""Downloads go on after a break, and count only when size and checksum are right."""

import email.message
import hashlib
import io
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from milrec.data.downloads import BY_FORM, DOWNLOADS, Download, known_download
from milrec.data.fetch import fetch
from milrec.errors import DownloadError

CONTENT = bytes(n * n % 251 for n in range(1_000))
FILE = "ml-tiny.zip"


class Publisher(HTTPServer):
    """A publisher on this machine: it can break off, and it notes which part was asked for."""

    knows_ranges = True
    tells_length = True
    most_per_answer: int | None = None  # bytes after which it breaks off
    breaks_left = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/datasets/{FILE}"


class Answer(BaseHTTPRequestHandler):
    server: Publisher

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.asked.append(wanted)
        if not self.path.endswith(FILE):
            return self.send_error(404)
        start = 0
        if wanted is not None and self.server.knows_ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(CONTENT):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.send_response(200)
        if self.server.tells_length:
            self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(self.part_from(start))
        return None

    def part_from(self, start: int) -> bytes:
        if self.server.breaks_left == 0 or self.server.most_per_answer is None:
            return CONTENT[start:]
        self.server.breaks_left -= 1
        return CONTENT[start : start + self.server.most_per_answer]

    def log_message(self, *_: object) -> None:
        """The library never prints, and neither do its tests."""


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Publisher() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def offer(url: str, content: bytes = CONTENT, n_bytes: int | None = len(CONTENT)) -> Download:
    return Download(url, hashlib.md5(content, usedforsecurity=False).hexdigest(), n_bytes, "for tests")


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


# What goes well


def test_a_file_is_fetched_whole(tmp_path: Path, publisher: Publisher) -> None:
    assert fetch(offer(publisher.url), tmp_path / "new" / "folder") == tmp_path / "new" / "folder" / FILE
    assert (tmp_path / "new" / "folder" / FILE).read_bytes() == CONTENT
    assert names(tmp_path / "new" / "folder") == [FILE]
    assert publisher.asked == [None]


def test_progress_is_reported_up_to_the_whole(tmp_path: Path, publisher: Publisher) -> None:
    reports: list[tuple[int, int | None]] = []
    fetch(offer(publisher.url), tmp_path, lambda have, total: reports.append((have, total)))
    assert reports == [(1_000, 1_000)]


def test_progress_goes_on_where_the_break_was(tmp_path: Path, publisher: Publisher) -> None:
    publisher.breaks_left, publisher.most_per_answer = 1, 400
    reports: list[tuple[int, int | None]] = []
    fetch(offer(publisher.url), tmp_path, lambda have, total: reports.append((have, total)))
    assert reports == [(400, 1_000), (1_000, 1_000)]


def test_a_complete_file_is_not_fetched_again(tmp_path: Path, publisher: Publisher) -> None:
    (tmp_path / FILE).write_bytes(CONTENT)
    assert fetch(offer(publisher.url), tmp_path) == tmp_path / FILE
    assert publisher.asked == []


@pytest.mark.parametrize("n_bytes", [len(CONTENT), None])
def test_a_size_need_not_be_known_before(tmp_path: Path, publisher: Publisher, n_bytes: int | None) -> None:
    publisher.tells_length = False
    reports: list[tuple[int, int | None]] = []
    fetch(offer(publisher.url, n_bytes=n_bytes), tmp_path, lambda have, total: reports.append((have, total)))
    assert (tmp_path / FILE).read_bytes() == CONTENT
    assert reports[-1] == (1_000, n_bytes)


# Breaks


def test_after_a_break_only_the_rest_is_fetched(tmp_path: Path, publisher: Publisher) -> None:
    publisher.breaks_left, publisher.most_per_answer = 1, 400
    fetch(offer(publisher.url), tmp_path)
    assert publisher.asked == [None, "bytes=400-"]
    assert (tmp_path / FILE).read_bytes() == CONTENT
    assert names(tmp_path) == [FILE]


def test_several_breaks_are_gone_on_from(tmp_path: Path, publisher: Publisher) -> None:
    publisher.breaks_left, publisher.most_per_answer = 3, 200
    fetch(offer(publisher.url, n_bytes=None), tmp_path)
    assert publisher.asked == [None, "bytes=200-", "bytes=400-", "bytes=600-"]
    assert (tmp_path / FILE).read_bytes() == CONTENT


def test_what_an_earlier_attempt_left_is_gone_on_from(tmp_path: Path, publisher: Publisher) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(CONTENT[:700])
    fetch(offer(publisher.url), tmp_path)
    assert publisher.asked == ["bytes=700-"]
    assert (tmp_path / FILE).read_bytes() == CONTENT
    assert names(tmp_path) == [FILE]


@pytest.mark.parametrize(("n_bytes", "asked"), [(len(CONTENT), []), (None, ["bytes=1000-"])])
def test_a_part_that_is_complete_is_only_checked(
    tmp_path: Path, publisher: Publisher, n_bytes: int | None, asked: list[str]
) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(CONTENT)
    fetch(offer(publisher.url, n_bytes=n_bytes), tmp_path)
    assert publisher.asked == asked
    assert names(tmp_path) == [FILE]


def test_too_many_breaks_end_in_an_error_that_keeps_what_has_come(tmp_path: Path, publisher: Publisher) -> None:
    publisher.breaks_left, publisher.most_per_answer = 1_000, 100
    with pytest.raises(DownloadError, match="what has arrived is kept; try again"):
        fetch(offer(publisher.url), tmp_path)
    assert names(tmp_path) == [f"{FILE}.part"]
    kept = (tmp_path / f"{FILE}.part").stat().st_size
    assert kept == 100 * len(publisher.asked)
    publisher.breaks_left = 0
    fetch(offer(publisher.url), tmp_path)
    assert publisher.asked[-1] == f"bytes={kept}-"
    assert (tmp_path / FILE).read_bytes() == CONTENT


def test_a_break_before_the_first_byte_is_not_tried_for_ever(tmp_path: Path, publisher: Publisher) -> None:
    publisher.breaks_left, publisher.most_per_answer = 1_000, 0
    with pytest.raises(DownloadError, match="could not be fetched"):
        fetch(offer(publisher.url), tmp_path)
    assert len(publisher.asked) <= 5
    assert not (tmp_path / FILE).exists()


def test_a_server_without_ranges_gives_the_whole_again(tmp_path: Path, publisher: Publisher) -> None:
    publisher.knows_ranges = False
    publisher.breaks_left, publisher.most_per_answer = 1, 400
    fetch(offer(publisher.url), tmp_path)
    assert publisher.asked == [None, "bytes=400-"]
    assert (tmp_path / FILE).read_bytes() == CONTENT  # not 400 bytes and the whole after them


def test_a_connection_that_is_refused_is_a_download_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Publisher() as closed:
        url = closed.url
    with pytest.raises(DownloadError, match="could not be fetched"):
        fetch(offer(url), tmp_path)
    assert names(tmp_path) == []


class BreakingInTls(io.BytesIO):
    """An https answer that breaks after some bytes: the socket reports an error of ssl, which is no ConnectionError."""

    status = 200

    def __init__(self) -> None:
        super().__init__(CONTENT[:400])
        self.headers = email.message.Message()
        self.headers["Content-Length"] = str(len(CONTENT))

    def read(self, size: int | None = -1) -> bytes:
        chunk = super().read(size)
        if not chunk:
            raise ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
        return chunk


def test_a_break_within_tls_is_a_break_like_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: BreakingInTls())
    with pytest.raises(DownloadError, match="could not be fetched"):
        fetch(offer("https://example.org/" + FILE), tmp_path)
    assert names(tmp_path) == [f"{FILE}.part"]


# What is not what the publisher offers


def test_a_wrong_checksum_leaves_nothing(tmp_path: Path, publisher: Publisher) -> None:
    expected = offer(publisher.url, content=b"something else")
    with pytest.raises(DownloadError, match=f"has the checksum .* and should have {expected.md5}"):
        fetch(expected, tmp_path)
    assert names(tmp_path) == []


def test_a_part_of_something_else_leaves_nothing_and_the_next_attempt_begins_anew(
    tmp_path: Path, publisher: Publisher
) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(b"x" * 700)
    with pytest.raises(DownloadError, match="checksum"):
        fetch(offer(publisher.url), tmp_path)
    assert names(tmp_path) == []
    fetch(offer(publisher.url), tmp_path)
    assert (tmp_path / FILE).read_bytes() == CONTENT


@pytest.mark.parametrize("n_bytes", [999, 1_001])
def test_a_wrong_size_leaves_nothing(tmp_path: Path, publisher: Publisher, n_bytes: int) -> None:
    with pytest.raises(DownloadError, match=f"has 1,000 bytes and should have {n_bytes:,}"):
        fetch(offer(publisher.url, n_bytes=n_bytes), tmp_path)
    assert names(tmp_path) == []


def test_a_part_that_is_too_long_leaves_nothing(tmp_path: Path, publisher: Publisher) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(CONTENT + b"more")
    with pytest.raises(DownloadError, match="has 1,004 bytes and should have 1,000"):
        fetch(offer(publisher.url), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[::-1]])
def test_a_file_that_is_there_but_wrong_is_kept_and_refused(
    tmp_path: Path, publisher: Publisher, content: bytes
) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(DownloadError, match="remove it and try again"):
        fetch(offer(publisher.url), tmp_path)
    assert (tmp_path / FILE).read_bytes() == content
    assert publisher.asked == []


def test_an_absent_file_is_answered_with_its_code_and_not_tried_again(tmp_path: Path, publisher: Publisher) -> None:
    with pytest.raises(DownloadError, match="answered 404 Not Found"):
        fetch(offer(publisher.url.replace(FILE, "gone.zip")), tmp_path)
    assert publisher.asked == [None]
    assert names(tmp_path) == []


def test_a_file_in_the_way_of_the_folder_is_a_download_error(tmp_path: Path, publisher: Publisher) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DownloadError):
        fetch(offer(publisher.url), tmp_path / "data")


# Names


@pytest.mark.parametrize("name", DOWNLOADS)
def test_every_known_data_set_has_an_address_a_checksum_and_terms(name: str) -> None:
    download = known_download(name)
    assert download.url.startswith("https://")
    assert download.file_name.endswith((".zip", ".tar.gz"))
    assert len(bytes.fromhex(download.md5)) == 16
    assert len(download.terms) > 50


def test_netflix_is_answered_with_a_sentence_that_helps() -> None:
    with pytest.raises(DownloadError, match="can no longer be downloaded as a plain archive: get it from Kaggle"):
        known_download("netflix")


def test_an_unknown_data_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DownloadError, match=r"unknown data set 'ml-99m' .*; known data sets: ") as error:
        known_download("ml-99m")
    assert all(name in str(error.value) for name in (*DOWNLOADS, *BY_FORM))
