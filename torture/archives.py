"""The archives of MovieLens, the Netflix Prize and Last.fm: small valid ones, changed inside and outside.

Every line of ratings in an archive that was only changed inside must be read, or be counted as dropped.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

from torture import oracle
from torture.cases import Case
from torture.commands import command_here, verdict
from torture.damage import damaged, odd_text, utf8
from torture.reading import facts_of, rows_dropped
from torture.verdicts import Outcome, accepted

Files = dict[str, bytes]
_LASTFM = "usersha1-artmbid-artname-plays.tsv"
_GENRES = ("unknown", "Action", "Drama")


def _ratings(chance: random.Random) -> list[tuple[int, int, int, int]]:
    """user, item, rating, time; every pair once."""
    return [
        (user, item, chance.randrange(1, 6), 880_000_000 + 1000 * user + item)
        for user in range(1, chance.choice((2, 4, 8)))
        for item in chance.sample(range(1, 13), 8)
    ]


def _movielens_100k(chance: random.Random) -> Files:
    rows = "".join(f"{user}\t{item}\t{rating}\t{time}\n" for user, item, rating, time in _ratings(chance))
    flags = "|".join("0" for _ in _GENRES[1:])
    items = "".join(f"{item}|Tïtle {item} (1995)|01-Jan-1995||http://x|1|{flags}\n" for item in range(1, 13))
    genres = "".join(f"{name}|{number}\n" for number, name in enumerate(_GENRES))
    return {
        "ml-100k/u.data": rows.encode(),
        "ml-100k/u.item": items.encode("latin-1"),
        "ml-100k/u.genre": genres.encode(),
    }


def _movielens_1m(chance: random.Random) -> Files:
    rows = "".join("::".join(map(str, row)) + "\n" for row in _ratings(chance))
    movies = "".join(f"{item}::Títle {item} (1995)::Drama|Action\n" for item in range(1, 13))
    return {"ml-1m/ratings.dat": rows.encode(), "ml-1m/movies.dat": movies.encode(chance.choice(("latin-1", "utf-8")))}


def _movielens_20m(chance: random.Random) -> Files:
    rows = "".join(f"{user},{item},{rating}.0,{time}\n" for user, item, rating, time in _ratings(chance))
    movies = "".join(f'{item},"Title, {item} (1995)",Drama|Action\n' for item in range(1, 13))
    return {
        "ml-20m/ratings.csv": b"userId,movieId,rating,timestamp\n" + rows.encode(),
        "ml-20m/movies.csv": b"movieId,title,genres\n" + movies.encode(),
    }


def _netflix(chance: random.Random) -> Files:
    of_movie: dict[int, list[str]] = {}
    for user, item, rating, _ in _ratings(chance):
        of_movie.setdefault(item, []).append(f"{user},{rating},2005-09-{item:02}\n")
    parts = {item: f"{item}:\n" + "".join(lines) for item, lines in sorted(of_movie.items())}
    titles = "".join(f"{item},{chance.choice(('2003', 'NULL'))},Tîtle, {item}\n" for item in parts).encode("latin-1")
    if chance.random() < 0.4:
        return {"combined_data_1.txt": "".join(parts.values()).encode(), "movie_titles.csv": titles}
    files = {f"training_set/mv_{item:07}.txt": text.encode() for item, text in parts.items()}
    if chance.random() < 0.4:
        return {"download/training_set.tar": _tar(files, "", chance), "download/movie_titles.txt": titles}
    return {**files, "movie_titles.txt": titles}


def _lastfm(chance: random.Random) -> Files:
    rows = []
    for user, item, plays, _ in _ratings(chance):
        mbid = "" if item % 4 == 0 else f"mbid-{item}"
        name = "" if chance.random() < 0.02 else f'Artist "{item}'
        rows.append(f"user{user:040}\t{mbid}\t{name}\t{plays}\n")
    return {f"lastfm-dataset-360K/{_LASTFM}": "".join(rows).encode()}


FORMATS: dict[str, Callable[[random.Random], Files]] = {
    "movielens-100k": _movielens_100k,
    "movielens-1m": _movielens_1m,
    "movielens-20m": _movielens_20m,
    "netflix": _netflix,
    "lastfm": _lastfm,
}
_RATINGS = re.compile(
    r"(u\.data|ratings\.dat|ratings\.csv|mv_[^/]*|combined_data_[^/]*|training_set\.tar|" + re.escape(_LASTFM) + ")$"
)


def make_archive(chance: random.Random) -> Case:
    """An archive, or a folder: changed inside, in its members, in its bytes, or not at all."""
    format = chance.choice(list(FORMATS))
    files = FORMATS[format](chance)
    change = chance.choice(("inside", "inside", "inside", "rows", "rows", "members", "bytes", "none"))
    if change in ("inside", "rows"):
        name = chance.choice(list(files))
        files[name] = damaged(files[name], chance) if change == "inside" else _other_rows(files[name], chance)
    ending = chance.choice(("", ".zip", ".tar", ".tar.gz", ".tgz"))
    if not ending:
        content = {f"set/{name}": held for name, held in files.items()}
        return Case("inputs", "archive", {"format": format, "name": "set", "change": change}, content)
    pack = _zip if ending == ".zip" else _tar
    packed = pack(files, ending, chance, odd=True) if change == "members" else pack(files, ending, chance)
    packed = damaged(packed, chance) if change == "bytes" else packed
    facts = {"format": format, "name": f"set{ending}", "change": change}
    return Case("inputs", "archive", facts, {f"set{ending}": packed})


def _other_rows(content: bytes, chance: random.Random) -> bytes:
    """Lines left out, doubled, moved, with other fields or other ends."""
    lines = content.splitlines(keepends=True)
    for _ in range(chance.choice((1, 1, 2, 5))):
        if not lines:
            break
        place = chance.randrange(len(lines))
        pick = chance.randrange(7)
        if pick == 0:
            del lines[place]
        elif pick == 1:
            lines.insert(place, lines[place])
        elif pick == 2:
            lines[place] = chance.choice((b"\n", b"\r\n", b" \n", b'"\n', b":::\n", b"\t\t\t\n", b",,,\n", b"7:\n"))
        elif pick == 3:
            lines[place] = lines[place].rstrip(b"\n") + chance.choice(
                (b"\r\n", b"\t\n", b"\tx\n", b",\n", b"::\n", b"")
            )
        elif pick == 4:
            lines[place] = re.sub(
                rb"[0-9]+", utf8(odd_text(chance)[:300]).replace(b"\\", b"\\\\"), lines[place], count=1
            )
        elif pick == 5:
            lines[place] = lines[place].replace(chance.choice((b"\t", b"::", b",", b"|")), b"", 1)
        else:
            lines[place] = b'"' + lines[place]
    return b"".join(lines)


def _zip(files: Files, ending: str, chance: random.Random, odd: bool = False) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")  # a name twice
        members = list(files.items())
        for name, content in _with_odd_members(members, chance) if odd else members:
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            kinds = (
                zipfile.ZIP_DEFLATED,
                zipfile.ZIP_DEFLATED,
                zipfile.ZIP_STORED,
                zipfile.ZIP_BZIP2,
                zipfile.ZIP_LZMA,
            )
            entry.compress_type = chance.choice(kinds)
            archive.writestr(entry, content)
    packed = out.getvalue()
    return packed.replace(b"\x14\x00\x00\x00", b"\x14\x00\x01\x00", 1) if odd and chance.random() < 0.2 else packed


def _with_odd_members(members: list[tuple[str, bytes]], chance: random.Random) -> list[tuple[str, bytes]]:
    name, content = chance.choice(members)
    more = (
        (name, b""), (name, content), (f"/{name}", content), (f"../{name}", content), (f"{name}/", b""),
        (f"again/{name.rpartition('/')[2]}", content[: len(content) // 2]), (f"__MACOSX/._{name}", b"\0\5\x16\7"),
        ("nested.zip", b"PK\5\6" + b"\0" * 18), ("é/" + name, content),
    )  # fmt: skip
    members.insert(chance.randrange(len(members) + 1), chance.choice(more))
    return members


def _tar(files: Files, ending: str, chance: random.Random, odd: bool = False) -> bytes:
    out = io.BytesIO()
    form = chance.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        place = chance.randrange(len(files) + 1)
        for number, (name, content) in enumerate(files.items()):
            if odd and number == place:
                _add_odd_member(archive, name, chance)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        if odd and place == len(files):
            _add_odd_member(archive, next(iter(files)), chance)
    packed = out.getvalue()
    return gzip.compress(packed, mtime=0) if ending in (".tar.gz", ".tgz") else packed


def _add_odd_member(archive: tarfile.TarFile, name: str, chance: random.Random) -> None:
    """A link, a device, a folder or a second file by the name of a file."""
    entry = tarfile.TarInfo(chance.choice((name, name, name, f"../{name}", f"/{name}", f"other/{name}")))
    entry.type = chance.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE,
                                tarfile.REGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE))  # fmt: skip
    entry.linkname = chance.choice((name, "nowhere", "../../etc/passwd", "/etc/passwd", ""))
    archive.addfile(entry)


def _bomb(megabytes: int) -> bytes:
    """A small zip that holds a large file of ratings: one line, over and over."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml-20m/movies.csv", "movieId,title,genres\n1,A title,Drama\n")
        with archive.open("ml-20m/ratings.csv", "w", force_zip64=True) as file:
            file.write(b"userId,movieId,rating,timestamp\n")
            for _ in range(megabytes):
                file.write(b"1,1,5.0,1000000\n" * (1 << 16))
    return out.getvalue()


def run_archive(case: Case, place: Path) -> Outcome:
    """Prepare the archive, and compare the rows with the lines of the files that are in it."""
    case.write_files(place)
    if case.facts["change"] == "bomb":
        (place / case.facts["name"]).write_bytes(_bomb(case.facts["megabytes"]))
    own = [
        "--min-per-user",
        "1",
        "--min-per-item",
        "1",
        *([] if case.facts["format"] == "lastfm" else ["--adopt-min", "1"]),
    ]
    named = ["--format", case.facts["format"].partition("-")[0]]
    end = command_here(["prepare", case.facts["name"], "--out", "data", *named, *own], place)
    outcome = verdict(end)
    if outcome is not accepted or case.facts["change"] not in ("inside", "rows", "none"):
        return outcome
    files = case.files if case.facts["name"] == "set" else _unpacked(case.files[case.facts["name"]])
    return _all_counted(place / "data", _lines_in(files))


def _unpacked(content: bytes) -> Files:
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member))}


def _lines_in(files: Files) -> int:
    """How many rows of ratings there are, going by lines alone."""
    total = 0
    for name, content in files.items():
        if not (found := _RATINGS.search(name)):
            continue
        if found[1] == "training_set.tar":
            return _lines_in(_unpacked(content))
        if found[1] == "ratings.csv":
            table = oracle.read_table(content, "ratings.csv", ",")
            total += len(table.rows) + table.ragged
            continue
        lines = [line for line in re.split(rb"[\r\n]", content) if line]
        headers = found[1].startswith(("mv_", "combined"))
        total += sum(not (headers and line.endswith(b":")) for line in lines)
    return total


def _all_counted(folder: Path, expected: int) -> Outcome:
    facts = facts_of(folder)
    dropped = rows_dropped(facts)
    if facts["rows"] + dropped == expected == facts.get("rows_in_source", expected):
        return accepted
    return Outcome("silent loss", f"{facts['rows']} rows of {expected}; {dropped} are counted as dropped")
