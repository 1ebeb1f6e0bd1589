"""The public data sets that can be downloaded: where, under which terms, and how to know the right archive."""

from __future__ import annotations

from dataclasses import dataclass

from milrec.errors import DownloadError, unknown

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
    md5: str  # from the publisher
    n_bytes: int | None  # None if no trustworthy figure was found
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
    "netflix": "the Netflix Prize data can no longer be downloaded as a plain archive: get it from Kaggle "
    "('netflix-inc/netflix-prize-data', with an account) and give the folder to `milrec prepare`",
}

NAMES = (*DOWNLOADS, *BY_FORM)


def known_download(name: str) -> Download:
    if name in BY_FORM:
        raise DownloadError(BY_FORM[name])
    if name not in DOWNLOADS:
        raise DownloadError(unknown("data set", name, NAMES))
    return DOWNLOADS[name]
