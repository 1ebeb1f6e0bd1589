"""Fetch a public data set: terms shown first, a break is gone on from, size and checksum checked before it counts."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from milrec.errors import DownloadError, unknown

_CHUNK = 1 << 18
_TRIES = 5

_MOVIELENS_TERMS = (
    "MovieLens data, by GroupLens, University of Minnesota: for research; no redistribution and no commercial use "
    "without separate permission; acknowledge Harper & Konstan (2015) in publications. "
    "Full terms: the README inside the archive."
)
_LASTFM_TERMS = (
    "Last.fm-360K, by Òscar Celma with permission of Last.fm: for non-commercial use; cite Celma, 'Music "
    "Recommendation and Discovery in the Long Tail' (2010). Full terms: the README inside the archive."
)


@dataclass(frozen=True)
class Download:
    """Where a publisher offers an archive, and how to know it is the right one."""

    url: str
    md5: str  # as the publisher gives it
    n_bytes: int | None  # None where no trustworthy figure was found
    terms: str

    @property
    def file_name(self) -> str:
        return self.url.rsplit("/", 1)[1]


def _movielens(name: str, md5: str, n_bytes: int) -> Download:
    return Download(f"https://files.grouplens.org/datasets/movielens/{name}.zip", md5, n_bytes, _MOVIELENS_TERMS)


DOWNLOADS = {
    "ml-100k": _movielens("ml-100k", "0e33842e24a9c977be4e0107933c0723", 4_924_029),
    "ml-1m": _movielens("ml-1m", "c4d9eecfca2ab87c1945afe126590906", 5_917_549),
    "ml-10m": _movielens("ml-10m", "ce571fd55effeba0271552578f2648bd", 65_566_137),
    "ml-20m": _movielens("ml-20m", "cd245b17a1ae2cc31bb14903e1204af3", 198_702_078),
    "ml-25m": _movielens("ml-25m", "6b51fb2759a8657d3bfcbfc42b592ada", 261_978_986),
    "ml-32m": _movielens("ml-32m", "d472be332d4daa821edc399621853b57", 238_950_008),
    "lastfm-360k": Download(
        "https://zenodo.org/records/6090214/files/lastfm-dataset-360K.tar.gz",
        "635e6ed3fc873aa4ba33aba0ebce02b1",
        None,
        _LASTFM_TERMS,
    ),
}
BY_FORM = {
    "netflix": "the Netflix Prize data is no longer offered as a plain archive: get it from Kaggle "
    "('netflix-inc/netflix-prize-data', with an account) and give the folder to `milrec prepare`",
}

Report = Callable[[int, int | None], None]


def known_download(name: str) -> Download:
    if name in BY_FORM:
        raise DownloadError(BY_FORM[name])
    if name not in DOWNLOADS:
        raise DownloadError(unknown("data set", name, [*DOWNLOADS, *BY_FORM]))
    return DOWNLOADS[name]


def fetch(download: Download, folder: Path, report: Report | None = None) -> Path:
    """The archive in `folder`; what an earlier attempt left there is gone on from, not fetched again."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DownloadError(f"'{folder}' is not a folder; choose another place for the archive") from None
    target, part = folder / download.file_name, folder / f"{download.file_name}.part"
    if target.exists():
        _check(target, download)
        return target
    for attempt in range(1, _TRIES + 1):
        before = part.stat().st_size if part.exists() else 0
        try:
            _fetch_rest(download, part, report)
            break
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
            _give_up_if_hopeless(error, download, attempt, progressed=part.exists() and part.stat().st_size > before)
    try:
        _check(part, download)
    except DownloadError:
        part.unlink()
        raise
    part.rename(target)
    return target


def _fetch_rest(download: Download, part: Path, report: Report | None) -> None:
    """Ask for what is not there yet; a server that cannot give a part gives the whole, and that replaces it."""
    have = part.stat().st_size if part.exists() else 0
    if download.n_bytes is not None and have == download.n_bytes:
        return
    request = urllib.request.Request(download.url, headers={"User-Agent": "milrec"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if have and error.code == 416:  # nothing is left to send
            return
        raise
    with response, part.open("ab" if response.status == 206 else "wb") as file:
        have = file.tell()
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else download.n_bytes
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            have += len(chunk)
            if report is not None:
                report(have, total)
        if length and total is not None and have < total:
            raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _give_up_if_hopeless(error: Exception, download: Download, attempt: int, progressed: bool) -> None:
    if isinstance(error, urllib.error.HTTPError):
        raise DownloadError(f"'{download.url}' answered {error.code} {error.reason}") from None
    if attempt == _TRIES or not progressed:
        raise DownloadError(
            f"'{download.url}' could not be fetched ({error}); what has arrived is kept; try again to continue"
        ) from None


def _check(file: Path, download: Download) -> None:
    size = file.stat().st_size
    if download.n_bytes is not None and size != download.n_bytes:
        raise DownloadError(
            f"'{file}' has {size:,} bytes and should have {download.n_bytes:,}; remove it and try again"
        )
    with file.open("rb") as handle:
        found = hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != download.md5:
        raise DownloadError(
            f"'{file}' has the checksum {found} and should have {download.md5}; remove it and try again"
        )
