"""Download an archive: resumed after a break, and checked by size and checksum before it counts."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from milrec.data.downloads import Download
from milrec.disk.files import sync_file, sync_folder, system_errors
from milrec.disk.locks import only_writer
from milrec.errors import DownloadError

_CHUNK = 1 << 18
_TRIES = 5

Report = Callable[[int, int | None], None]


def fetch(download: Download, folder: Path, report: Report | None = None) -> Path:
    """The archive in `folder`; what an earlier attempt left there is not fetched again."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DownloadError(f"'{folder}' is not a folder; choose another place for the archive") from None
    target = folder / download.file_name
    with only_writer(target), system_errors(target):
        return _fetched(download, target, report)


def _fetched(download: Download, target: Path, report: Report | None) -> Path:
    part = target.with_name(f"{target.name}.part")
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
    sync_file(part)
    part.rename(target)
    sync_folder(target.parent)
    return target


def _fetch_rest(download: Download, part: Path, report: Report | None) -> None:
    """Ask for the rest; a server that cannot send a part sends the whole archive, which replaces what was there."""
    have = part.stat().st_size if part.exists() else 0
    if download.n_bytes is not None and have == download.n_bytes:
        return
    request = urllib.request.Request(download.url, headers={"User-Agent": "milrec"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if have and error.code == 416:  # there is nothing left to send
            return
        raise
    with response, part.open("ab" if response.status == 206 else "wb") as file:
        have = file.tell()
        length = response.headers.get("Content-Length", "")
        length = length if length.isdecimal() else ""
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
