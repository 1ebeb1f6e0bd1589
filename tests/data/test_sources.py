"""Where files are read from: nothing without end, nothing that unpacks to far more than it is, nothing twice."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import milrec
from milrec.data.reading import sources
from milrec.data.reading.read import read_source
from milrec.data.reading.sources import Allowed
from milrec.data.reading.titles import read_titles
from milrec.errors import DataError

RATINGS = b"userId,movieId,rating,timestamp\n" + b"1,1,5,0\n"
MOVIES = b"movieId,title,genres\n1,A,B\n"
has_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
TOO_MUCH = "unpacks to more than 100 times its size; if that is right, give a higher `max_expansion`"


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def a_file(name: str, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def a_link(name: str, to: str, type: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = type, to
    return member, b""


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# Links and names that come twice


@pytest.mark.parametrize("type", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_a_later_entry_of_the_same_name_is_refused(tmp_path: Path, type: bytes) -> None:
    content = tar_of(a_file("ratings.csv", RATINGS), a_file("movies.csv", MOVIES), a_link("ratings.csv", "gone", type))
    for name, packed in (("ml.tar", content), ("ml.tar.gz", gzip.compress(content))):
        with pytest.raises(DataError, match=r"has two entries named 'ratings\.csv'"):
            read_source(written(tmp_path / name, packed))


def test_links_of_other_names_are_not_followed(tmp_path: Path) -> None:
    content = tar_of(a_file("ratings.csv", RATINGS), a_file("movies.csv", MOVIES), a_link("u.data", "/etc/passwd"))
    assert read_source(written(tmp_path / "ml.tar", content))[0] == "movielens"
    only_links = tar_of(a_link("ratings.csv", "/etc/passwd"), a_link("movies.csv", "/etc/passwd"))
    with pytest.raises(DataError, match="does not look like a known data set"):
        read_source(written(tmp_path / "links.tar", only_links))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_with_two_entries_of_one_name_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ml.zip", "w") as archive:
        for name, content in (("ratings.csv", RATINGS), ("movies.csv", MOVIES), ("ratings.csv", RATINGS)):
            archive.writestr(name, content)
    with pytest.raises(DataError, match=r"has two entries named 'ratings\.csv'"):
        read_source(tmp_path / "ml.zip")


def test_files_of_one_name_in_two_folders_are_not_chosen_between(tmp_path: Path) -> None:
    files = {"new/ratings.csv": RATINGS, "old/ratings.csv": RATINGS, "new/movies.csv": MOVIES}
    with pytest.raises(DataError, match=r"has two files 'ratings\.csv': 'new/ratings\.csv' and 'old/ratings\.csv'"):
        read_source(written(tmp_path / "ml.zip", zip_of(files)))
    rows = b"1:\n7,5,2005-01-01\n"
    netflix = {"a/mv_0000001.txt": rows, "b/mv_0000001.txt": rows}
    with pytest.raises(DataError, match=r"has two files 'mv_0000001\.txt'"):
        read_source(written(tmp_path / "netflix.zip", zip_of(netflix)))


# Things that are no files


@has_pipes
@pytest.mark.parametrize("format", ["auto", "csv", "parquet", "movielens", "netflix", "lastfm"])
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_devices_and_pipes_are_refused_at_once(tmp_path: Path, kind: str, format: str) -> None:
    source = Path("/dev/zero")
    if kind == "pipe":
        source = tmp_path / "pipe.csv"
        os.mkfifo(source)
    with pytest.raises(DataError, match="is neither a file nor a folder; save what it holds as a file first"):
        read_source(source, format=format)
    with pytest.raises(DataError, match="is neither a file nor a folder"):
        read_titles(source)


@pytest.mark.parametrize("first", ["u1,i1,5", "7,7,5"])
def test_a_file_without_a_header_is_named_as_such(tmp_path: Path, first: str) -> None:
    written(tmp_path / "plays.csv", f"{first}\nu2,i2,3\n".encode())
    with pytest.raises(DataError, match=r"'.*plays.csv' seems to have no header: its columns are called .*; give them"):
        read_source(tmp_path / "plays.csv")


@has_pipes
def test_a_pipe_in_a_folder_is_no_file_of_the_data_set(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ratings.csv")
    written(tmp_path / "movies.csv", MOVIES)
    with pytest.raises(DataError, match=r"no column of '.*movies.csv' is recognised as holding users"):
        read_source(tmp_path)  # a table of parts, of which there is one


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file in '"):
        read_source(tmp_path, format="csv")
    with pytest.raises(DataError, match="is a folder; a file is needed"):
        read_titles(tmp_path)


def test_a_folder_with_very_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST_FILES", 3)
    for name in "abcd":
        written(tmp_path / name, b"")
    with pytest.raises(DataError, match="has over 3 files; name the folder of the data set itself"):
        read_source(tmp_path)


def test_a_file_that_may_not_be_read_is_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path / "ml.tar", b"x")

    def denied(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match=r"ml\.tar' cannot be read \(Permission denied\)"):
        read_source(source, format="movielens")


# What unpacks to far more than it is


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any file may unpack to 64 kB, instead of 64 MB: the same ratios with a thousandth of the bytes."""
    monkeypatch.setattr(sources, "_ANY_FILE", 1 << 16)
    monkeypatch.setattr(sources, "SMALL", 1 << 14)


MANY_RATINGS = RATINGS + b"1,1,5,0\n" * 100_000


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("ml.zip", lambda files: zip_of(files)),
        ("ml.tar.gz", lambda files: gzip.compress(tar_of(*(a_file(*one) for one in files.items())))),
        ("ml.tar.gz", lambda files: bz2.compress(tar_of(*(a_file(*one) for one in files.items())))),
        ("ml.tar.gz", lambda files: lzma.compress(tar_of(*(a_file(*one) for one in files.items())))),
    ],
)
@pytest.mark.usefixtures("small_limits")
def test_an_archive_that_unpacks_to_far_too_much_is_refused(
    tmp_path: Path, name: str, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    source = written(tmp_path / name, pack({"ratings.csv": MANY_RATINGS, "movies.csv": MOVIES}))
    assert len(MANY_RATINGS) > 100 * source.stat().st_size
    with pytest.raises(DataError) as error:
        read_source(source)
    assert str(error.value) == f"'{source}' {TOO_MUCH}"
    _, rows = read_source(source, allowed=Allowed(max_expansion=100_000))
    assert len(rows) == 100_001


def test_a_process_ends_after_an_archive_was_refused(tmp_path: Path) -> None:
    """pyarrow, left with work by an error of its source, kept Python from ending."""
    source = written(tmp_path / "ml.zip", zip_of({"ratings.csv": RATINGS * (1 << 21), "movies.csv": MOVIES}))
    code = "import milrec, sys\ntry: milrec.read(sys.argv[1])\nexcept milrec.MilrecError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code, source],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, f"'{source}' {TOO_MUCH}"), done.stderr


@pytest.mark.usefixtures("small_limits")
def test_a_packed_table_that_unpacks_to_far_too_much_is_refused(tmp_path: Path) -> None:
    source = written(tmp_path / "table.csv.gz", gzip.compress(b"user,item\n" + b"a,b\n" * 100_000))
    with pytest.raises(DataError, match=r"table\.csv\.gz' unpacks to more than 100 times its size"):
        read_source(source)
    assert milrec.read(source, max_expansion=10_000).reading["rows"] == 100_000


@pytest.mark.usefixtures("small_limits")
def test_a_parquet_file_with_far_too_many_rows_is_refused(tmp_path: Path) -> None:
    column = pa.array(["x"] * 200_000).dictionary_encode()
    pq.write_table(pa.table({"user": column, "item": column}), tmp_path / "table.parquet")
    with pytest.raises(DataError, match=r"table\.parquet' unpacks to more than 100 times its size"):
        read_source(tmp_path / "table.parquet")
    assert milrec.read(tmp_path / "table.parquet", max_expansion=10_000).reading["rows"] == 200_000


@pytest.mark.usefixtures("small_limits")
def test_what_is_packed_many_times_over_is_added_up(tmp_path: Path) -> None:
    """Each movie is small, and all of them together are not."""
    movie = "".join(f"{user},5,2005-01-01\n" for user in range(100, 900)).encode()
    files = {f"mv_{number:07d}.txt": b"%d:\n" % number + movie for number in range(1, 400)}
    source = written(tmp_path / "netflix.tar.gz", gzip.compress(tar_of(*(a_file(*one) for one in files.items()))))
    with pytest.raises(DataError, match="unpacks to more than 20 times its size"):
        read_source(source, allowed=Allowed(max_expansion=20))
    zipped = written(tmp_path / "netflix.zip", zip_of(files))
    with pytest.raises(DataError, match="unpacks to more than 2 times its size"):
        read_source(zipped, allowed=Allowed(max_expansion=2))


@pytest.mark.usefixtures("small_limits")
def test_a_hole_in_a_tar_archive_is_not_read_without_end(tmp_path: Path) -> None:
    """A sparse file of a terabyte takes 512 bytes."""
    header = bytearray(tarfile.TarInfo("ratings.csv").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:398] = b"%011o " % 0  # one piece of nothing, at 0
    header[398:410] = b"%011o " % 0
    header[483:495] = b"77777777777 "  # and the size of the whole: 8 GiB
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    content = bytes(header) + tar_of(a_file("movies.csv", MOVIES))
    with pytest.raises(DataError, match="unpacks to more than 100 times its size"):
        read_source(written(tmp_path / "ml.tar", content))


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("pack", [lambda content: content, gzip.compress])
def test_a_header_that_claims_too_much_is_not_believed(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    member = tarfile.TarInfo("ratings.csv")
    member.type, member.size = tarfile.XHDTYPE, 1 << 33
    header = member.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(DataError):
        read_source(written(tmp_path / "ml.tar.gz", pack(header + b"\0" * 10_000)), format="movielens")


@pytest.mark.parametrize(
    ("name", "large"),
    [("u.item", {"u.data": b"1\t1\t5\t0\n"}), ("movies.dat", {"ratings.dat": b"1::1::5::0\n"}),
     ("movie_titles.txt", {"combined_data_1.txt": b"1:\n7,5,2005-01-01\n"}), ("mv_0000001.txt", {})],
)  # fmt: skip
def test_a_file_that_is_read_whole_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, large: dict[str, bytes]
) -> None:
    monkeypatch.setattr(sources, "SMALL", 1 << 20)
    files = {**large, name: b"1:\n" + b"7,5,2005-01-01\n" * 100_000}
    for source in (written(tmp_path / "data.zip", zip_of(files)), tmp_path):
        with pytest.raises(DataError, match=f"'{name}' in '.*' is over 1 MiB, too large for such a file"):
            read_source(source)
        for file, content in files.items():
            written(tmp_path / file, content)
        (tmp_path / "data.zip").unlink(missing_ok=True)


@pytest.mark.parametrize("times", [0, -1, float("nan"), "many", None])
def test_a_limit_is_a_number_from_1_up(times: object) -> None:
    with pytest.raises(DataError, match="`max_expansion` must be a number, 1 or more"):
        milrec.read({"user": [1], "item": [1]}, max_expansion=times)


# Whole or not at all


def test_a_tar_archive_inside_an_archive_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    movies = [a_file(f"mv_{number:07d}.txt", b"%d:\n7,5,2005-01-01\n" % number) for number in (1, 2, 3)]
    inner = tar_of(*movies)
    for cut in (1024, 2048, 3 * 1024):  # after each movie, where nothing but the missing end shows it
        outer = tar_of(a_file("training_set.tar", inner[:cut]))
        with pytest.raises(DataError, match="it is cut short"):
            read_source(written(tmp_path / "netflix.tar", outer))
    assert len(read_source(written(tmp_path / "netflix.tar", tar_of(a_file("training_set.tar", inner))))[1]) == 3
