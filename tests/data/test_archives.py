"""The original archives of MovieLens, the Netflix Prize and Last.fm-360K, made small, in their exact formats."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from milrec.data.reading import archives
from milrec.data.reading.archives import LASTFM_FILE, detected
from milrec.data.reading.read import PAPER_FILTERS, prepare_source, read_source
from milrec.data.reading.tables import Rows
from milrec.errors import DataError

Files = dict[str, bytes]


def as_folder(path: Path, files: Files) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def as_zip(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path.with_suffix(".zip")


def tar_bytes(files: Files, compression: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def titles(rows: Rows, column: str = "title") -> dict[object, str]:
    assert rows.item_table is not None
    table = rows.item_table.to_pydict()
    return dict(zip(table["id"], table[column], strict=True))


def entries(rows: Rows) -> list[tuple[object, object, float]]:
    assert rows.values is not None
    return sorted(zip(rows.users.to_pylist(), rows.items.to_pylist(), rows.values.tolist(), strict=True))


# MovieLens: user 1 likes five movies and finds one middling, user 2 likes four (too few) and finds one middling.

RATINGS = [
    (1, 1, 4, 874965758), (1, 2, 5, 876893171), (1, 3, 4, 878542960), (1, 10, 5, 876893119), (1, 20, 4, 889751712),
    (1, 30, 3, 875071561), (2, 1, 5, 888550871), (2, 2, 5, 888551922), (2, 3, 5, 888551441), (2, 10, 5, 888552084),
    (2, 20, 3, 888551648),
]  # fmt: skip
TITLES = {
    1: "Toy Story (1995)",
    2: "Misérables, Les (1995)",
    3: 'What "Is" It? (1996)',
    10: "Cité des enfants perdus, La (1995)",
    20: "20,000 Leagues: Under the Sea (1954)",
    30: "Belle de jour (1967)",
}
GENRES = {1: "Animation|Children's", 2: "Drama", 3: "Comedy", 10: "Adventure|Sci-Fi", 20: "Adventure", 30: "Drama"}
GENRES_OF_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


def ml_100k() -> Files:
    items = []
    for item, title in TITLES.items():
        flags = ["1" if name in GENRES[item].split("|") else "0" for name in GENRES_OF_100K]
        link = "http://us.imdb.com/M/title-exact?" + title.replace(" ", "%20")
        items.append("|".join([str(item), title, "01-Jan-1995", "", link, *flags]))
    genres = "".join(f"{name}|{number}\n" for number, name in enumerate(GENRES_OF_100K))
    return {
        "ml-100k/README": b"SUMMARY & USAGE LICENSE\n",
        "ml-100k/u.data": "".join("\t".join(map(str, row)) + "\n" for row in RATINGS).encode(),
        "ml-100k/u.genre": (genres + "\n").encode(),
        "ml-100k/u.item": ("\n".join(items) + "\n").encode("latin-1"),
        "ml-100k/u1.base": b"",
    }


def ml_dat(name: str, encoding: str) -> Files:
    return {
        f"{name}/movies.dat": "".join(f"{i}::{t}::{GENRES[i]}\n" for i, t in TITLES.items()).encode(encoding),
        f"{name}/ratings.dat": "".join("::".join(map(str, row)) + "\n" for row in RATINGS).encode(),
        f"{name}/README": b"SUMMARY\n",
    }


def ml_csv(name: str) -> Files:
    def quoted(title: str) -> str:
        return '"' + title.replace('"', '""') + '"' if "," in title or '"' in title else title

    ratings = "".join(f"{user},{item},{rating:.1f},{time}\n" for user, item, rating, time in RATINGS)
    movies = "".join(f"{item},{quoted(title)},{GENRES[item]}\n" for item, title in TITLES.items())
    return {
        f"{name}/links.csv": b"movieId,imdbId,tmdbId\n1,0114709,862\n",
        f"{name}/movies.csv": ("movieId,title,genres\n" + movies).encode(),
        f"{name}/ratings.csv": ("userId,movieId,rating,timestamp\n" + ratings).encode(),
        f"{name}/tags.csv": b"userId,movieId,tag,timestamp\n1,2,funny,1445714994\n",
    }


MOVIELENS: dict[str, Callable[[], Files]] = {
    "ml-100k": ml_100k,
    "ml-1m": lambda: ml_dat("ml-1m", "latin-1"),
    "ml-10m": lambda: ml_dat("ml-10M100K", "utf-8"),
    "ml-20m": lambda: ml_csv("ml-20m"),
    "ml-25m": lambda: ml_csv("ml-25m"),
    "ml-32m": lambda: ml_csv("ml-32m"),
}


@pytest.mark.parametrize("pack", [as_folder, as_zip])
@pytest.mark.parametrize("name", MOVIELENS)
def test_movielens_is_read_as_its_publisher_packs_it(
    tmp_path: Path, name: str, pack: Callable[[Path, Files], Path]
) -> None:
    source = pack(tmp_path / name, MOVIELENS[name]())
    format, rows = read_source(source)
    assert format == "movielens"
    assert entries(rows) == [(user, item, rating) for user, item, rating, _ in RATINGS]
    assert rows.times is not None and rows.times.tolist() == [time for *_, time in RATINGS]
    assert titles(rows) == TITLES
    assert titles(rows, "genres") == GENRES


@pytest.mark.parametrize("name", MOVIELENS)
def test_movielens_gets_the_filters_of_the_paper(tmp_path: Path, name: str) -> None:
    *_, filters, result = prepare_source(as_zip(tmp_path / name, MOVIELENS[name]()))
    assert filters == PAPER_FILTERS["movielens"]
    data = result.interactions
    assert data.users["id"].to_pylist() == [1]  # user 2 has four ratings from 4 on; five are needed
    assert data.items["id"].to_pylist() == [1, 2, 3, 10, 20]  # whole numbers, in their order
    assert data.items["title"].to_pylist() == [TITLES[item] for item in (1, 2, 3, 10, 20)]
    assert data.adopted.toarray().tolist() == [[1, 1, 1, 1, 1]]
    assert data.rejected.nnz == 0
    assert result.counts["rows"] == 11
    assert result.counts["rows_neither_adopted_nor_rejected"] == 2


def test_movielens_10m_has_half_stars(tmp_path: Path) -> None:
    files = {
        "ml-10M100K/ratings.dat": b"1::122::5::838985046\n1::185::4.5::838983525\n2::122::0.5::838983392\n",
        "ml-10M100K/movies.dat": "122::Amélie (2001)::Comedy|Romance\n185::Up::(no genres listed)\n".encode(),
    }
    _, rows = read_source(as_folder(tmp_path, files))
    assert entries(rows) == [(1, 122, 5), (1, 185, 4.5), (2, 122, 0.5)]
    assert titles(rows) == {122: "Amélie (2001)", 185: "Up"}


def test_movielens_100k_has_a_movie_of_which_nothing_is_known(tmp_path: Path) -> None:
    files = ml_100k()
    files["ml-100k/u.item"] += b"267|unknown||||1|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0\n"
    _, rows = read_source(as_folder(tmp_path, files))
    assert titles(rows)[267] == "unknown"
    assert titles(rows, "genres")[267] == "unknown"


@pytest.mark.parametrize(("name", "file"), [("ml-100k", "ml-100k/u.data"), ("ml-1m", "ml-1m/ratings.dat")])
def test_the_file_of_ratings_itself_may_be_named(tmp_path: Path, name: str, file: str) -> None:
    as_folder(tmp_path, MOVIELENS[name]())
    format, rows = read_source(tmp_path / file)
    assert format == "movielens"
    assert len(rows) == len(RATINGS)
    assert titles(rows) == TITLES


@pytest.mark.parametrize(
    ("name", "file"),
    [("ml-100k", "ml-100k/u.item"), ("ml-1m", "ml-1m/movies.dat"), ("ml-20m", "ml-20m/movies.csv")],
)
def test_movielens_without_its_titles_is_refused(tmp_path: Path, name: str, file: str) -> None:
    files = MOVIELENS[name]()
    del files[file]
    with pytest.raises(DataError, match=f"has no file '{file.split('/')[1]}'"):
        read_source(as_folder(tmp_path, files), format="movielens")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("ml-100k", "ml-100k/u.data"), ("ml-100k", "ml-100k/u.item"), ("ml-100k", "ml-100k/u.genre"),
        ("ml-1m", "ml-1m/ratings.dat"), ("ml-1m", "ml-1m/movies.dat"),
        ("ml-20m", "ml-20m/ratings.csv"), ("ml-20m", "ml-20m/movies.csv"),
    ],
)  # fmt: skip
def test_a_movielens_file_that_is_something_else_is_refused(tmp_path: Path, name: str, file: str) -> None:
    """None of these is a line of any of the files; an error must be a sentence all the same."""
    for number, content in enumerate([b"", b"<html>404</html>\n", b"1|2\n", b"7\n", b"a::b::c\n", b"\xff\xfe\n"]):
        source = as_folder(tmp_path / str(number), MOVIELENS[name]() | {file: content})
        try:
            _, rows = read_source(source, format="movielens")
        except DataError:
            continue
        assert file.endswith(("u.genre", "u.item", "movies.dat"))  # titles may be absent; ratings may not
        assert entries(rows) == [(user, item, rating) for user, item, rating, _ in RATINGS]


@pytest.mark.parametrize(
    ("name", "file"), [("ml-100k", "ml-100k/u.item"), ("ml-1m", "ml-1m/movies.dat"), ("ml-20m", "ml-20m/movies.csv")]
)
def test_titles_that_are_cut_short_are_refused(tmp_path: Path, name: str, file: str) -> None:
    files = MOVIELENS[name]()
    last_line = files[file].rindex(b"\n30")
    files[file] = files[file][: last_line + 3]  # the last line is '30' and nothing more
    with pytest.raises(DataError):
        read_source(as_folder(tmp_path, files))


def test_other_tables_named_like_movielens_are_refused_with_a_sentence(tmp_path: Path) -> None:
    ratings = b"userId,movieId,rating,timestamp\n1,1,5,0\n"
    foreign: list[Files] = [
        {"ratings.csv": b"who,what\n1,2\n", "movies.csv": b"movieId,title,genres\n1,A,B\n"},
        {"ratings.csv": ratings, "movies.csv": b"movieId,title\n1,A\n"},
        {"ratings.csv": ratings, "movies.csv": b"a,b\n1,A\n"},
    ]
    for number, files in enumerate(foreign):
        with pytest.raises(DataError):
            read_source(as_folder(tmp_path / str(number), files))


# Netflix

NETFLIX = {  # movie → (user, rating, date)
    1: [(1488844, 3, "2005-09-06"), (822109, 5, "2005-05-13"), (7, 4, "2005-10-19")],
    2: [(822109, 4, "2005-09-05"), (7, 1, "1999-11-11")],
    72: [(1488844, 4, "2004-02-29")],
}
NETFLIX_TITLES = {
    1: "Dinosaur Planet (2003)",
    2: "Isle of Man TT 2004 Review",
    72: "At Home Among Strangers, A Stranger Among His Own (1974)",
    9: "Pokémon: Fête, Café (1999)",
}
NETFLIX_ROWS = sorted((user, movie, float(rating)) for movie, rows in NETFLIX.items() for user, rating, _ in rows)
MOVIE_TITLES = (
    "1,2003,Dinosaur Planet\n2,NULL,Isle of Man TT 2004 Review\n"
    "72,1974,At Home Among Strangers, A Stranger Among His Own\n9,1999,Pokémon: Fête, Café\n"
).encode("latin-1")


def block(movie: int) -> bytes:
    return (f"{movie}:\n" + "".join(f"{user},{rating},{date}\n" for user, rating, date in NETFLIX[movie])).encode()


def training_set() -> Files:
    return {f"training_set/mv_{movie:07d}.txt": block(movie) for movie in NETFLIX}


def netflix_folder(path: Path) -> Path:
    return as_folder(path, {**training_set(), "movie_titles.txt": MOVIE_TITLES, "probe.txt": b"1:\n30878\n"})


def netflix_folder_with_tar(path: Path) -> Path:
    return as_folder(path, {"training_set.tar": tar_bytes(training_set()), "movie_titles.txt": MOVIE_TITLES})


def netflix_tar(path: Path) -> Path:
    path.with_suffix(".tar").write_bytes(tar_bytes({**training_set(), "movie_titles.txt": MOVIE_TITLES}))
    return path.with_suffix(".tar")


def netflix_original(path: Path) -> Path:
    inner = tar_bytes(training_set())
    outer = {"download/training_set.tar": inner, "download/movie_titles.txt": MOVIE_TITLES, "download/README": b"x"}
    path.with_name("nf_prize_dataset.tar.gz").write_bytes(tar_bytes(outer, "gz"))
    return path.with_name("nf_prize_dataset.tar.gz")


def combined() -> Files:
    return {
        "combined_data_1.txt": block(1) + block(2),
        "combined_data_2.txt": block(72),
        "movie_titles.csv": MOVIE_TITLES,
        "qualifying.txt": b"1:\n1046323,2005-12-19\n",
    }


def netflix_kaggle(path: Path) -> Path:
    return as_folder(path, combined())


def netflix_kaggle_zip(path: Path) -> Path:
    return as_zip(path, combined())


def netflix_zip(path: Path) -> Path:
    return as_zip(path, {**training_set(), "movie_titles.txt": MOVIE_TITLES})


NETFLIX_FORMS = [
    netflix_folder, netflix_folder_with_tar, netflix_tar, netflix_original, netflix_kaggle, netflix_kaggle_zip,
    netflix_zip,
]  # fmt: skip


@pytest.mark.parametrize("pack", NETFLIX_FORMS)
def test_netflix_is_read_in_every_form_it_is_found_in(tmp_path: Path, pack: Callable[[Path], Path]) -> None:
    format, rows = read_source(pack(tmp_path / "netflix"))
    assert format == "netflix"
    assert entries(rows) == NETFLIX_ROWS
    assert titles(rows) == NETFLIX_TITLES


@pytest.mark.parametrize("pack", [netflix_folder, netflix_tar, netflix_kaggle])
def test_a_movie_whose_ratings_stand_in_two_blocks_stays_one_movie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[Path], Path]
) -> None:
    monkeypatch.setattr(archives, "_BLOCK", 25)  # a line and a bit: every block ends within a movie
    _, rows = read_source(pack(tmp_path / "netflix"))
    assert entries(rows) == NETFLIX_ROWS


def test_netflix_dates_are_times(tmp_path: Path) -> None:
    _, rows = read_source(netflix_kaggle(tmp_path / "netflix"))
    assert rows.times is not None
    days = dict(zip(zip(rows.users.to_pylist(), rows.items.to_pylist(), strict=True), rows.times.tolist(), strict=True))
    assert days[7, 1] - days[1488844, 1] == 43  # from 6 September to 19 October 2005
    assert days[1488844, 72] == 12_477  # days from 1 January 1970 to 29 February 2004


def test_netflix_gets_the_filters_of_the_paper(tmp_path: Path) -> None:
    per_movie = {movie: f"{movie}:\n11,5,2005-01-01\n22,{4 if movie < 5 else 3},2005-01-01\n" for movie in range(1, 6)}
    source = as_folder(tmp_path, {"combined_data_1.txt": "".join(per_movie.values()).encode()})
    *_, filters, result = prepare_source(source)
    assert (filters.adopt_min, filters.min_per_user, filters.min_per_item) == (4, 5, 1)
    assert result.interactions.users["id"].to_pylist() == [11]  # user 22 adopts four
    assert result.interactions.items["id"].to_pylist() == [1, 2, 3, 4, 5]


def test_netflix_without_titles_has_none(tmp_path: Path) -> None:
    _, rows = read_source(as_folder(tmp_path, training_set()))
    assert rows.item_table is None


def test_netflix_rows_without_a_movie_do_not_count_for_that_of_another_file(tmp_path: Path) -> None:
    headless = combined() | {"combined_data_2.txt": b"7,5,2005-01-01\n"}
    with pytest.raises(DataError, match="a file of ratings that does not begin with a movie number"):
        read_source(as_folder(tmp_path / "a", headless))
    for content in (b"", b"\n", b"7,5,2005-01-01\n"):
        files = training_set() | {"training_set/mv_0000002.txt": content}
        with pytest.raises(DataError, match="a file of ratings that does not begin with a movie number"):
            read_source(as_folder(tmp_path / "b", files))


def test_a_netflix_line_longer_than_a_block_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once such a line was cut in two, silently."""
    monkeypatch.setattr(archives, "_BLOCK", 25)
    for digits in (30, 60):
        content = b"1:\n7,5,2005-01-01\n" + b"9" * digits + b",5,2005-01-01\n"
        with pytest.raises(DataError):
            read_source(as_folder(tmp_path, {"combined_data_1.txt": content}))


@pytest.mark.parametrize("row", [b"1:2:3:4\n", b"1:x:2::5::0\n", b"1::2:: ::5::0\n"])
def test_movielens_rows_with_something_between_two_colons_are_refused(tmp_path: Path, row: bytes) -> None:
    files = ml_dat("ml-1m", "latin-1")
    files["ml-1m/ratings.dat"] += row
    with pytest.raises(DataError):
        read_source(as_folder(tmp_path, files))


@pytest.mark.parametrize(
    "content", [b"7,5,2005-01-01\n1:\n", b"1:\n7,5\n", b"1:\nx,5,2005-01-01\n", b"1:\n7,5,soon\n", b"", b"a:\n"]
)
def test_netflix_lines_that_are_not_understood_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError):
        read_source(as_folder(tmp_path, {"combined_data_1.txt": content}))


def test_netflix_titles_that_are_not_understood_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_source(as_folder(tmp_path, combined() | {"movie_titles.csv": b"id,year,title\n1,2003,Dinosaur Planet\n"}))


def test_a_title_may_hold_the_ellipsis_of_windows(tmp_path: Path) -> None:
    """Byte 0x85: an ellipsis in Windows-1252, and a line end to str.splitlines once it is read as Latin-1."""
    _, rows = read_source(as_folder(tmp_path, combined() | {"movie_titles.csv": b"1,2003,Wait\x85 for, it, now\n"}))
    assert list(titles(rows)) == [1]
    assert titles(rows)[1].endswith("for, it, now (2003)")


# Last.fm

USER_1, USER_2 = "00000c289a1829a808ac09c00daf10bc3c4e223b", "00001411dc427966b17297bf4d69e7e193135d89"


def lastfm_line(user: str, mbid: str, artist: str, plays: object) -> bytes:
    return f"{user}\t{mbid}\t{artist}\t{plays}\n".encode()


LASTFM = b"".join(
    [
        lastfm_line(USER_1, "3bd73256-3905-4f3a-97e2-8b341527f805", "betty blowtorch", 2137),
        lastfm_line(USER_1, "", '"weird al" yankovic', 12),
        lastfm_line(USER_1, "", 'die "ärzte', 5),
        lastfm_line(USER_2, "3bd73256-3905-4f3a-97e2-8b341527f805", "Betty Blowtorch", 3),
        lastfm_line(USER_2, "", "björk", 0),
        lastfm_line(USER_2, "", "", 99),  # neither an id nor a name
        lastfm_line(USER_2, "", "null", 1),
    ]
)


def lastfm_targz(path: Path, content: bytes) -> Path:
    files = {
        f"lastfm-dataset-360K/{LASTFM_FILE}": content,
        "lastfm-dataset-360K/usersha1-profile.tsv": b"x\tm\t22\tGermany\tFeb 1, 2007\n",
    }
    archive = path.with_name("lastfm-dataset-360K.tar.gz")
    archive.write_bytes(tar_bytes(files, "gz"))
    return archive


def lastfm_file(path: Path, content: bytes) -> Path:
    return as_folder(path, {LASTFM_FILE: content}) / LASTFM_FILE


def lastfm_folder(path: Path, content: bytes) -> Path:
    return as_folder(path, {LASTFM_FILE: content})


@pytest.mark.parametrize("pack", [lastfm_targz, lastfm_folder, lastfm_file])
def test_lastfm_is_read_with_quotes_in_names_and_without_some_ids(
    tmp_path: Path, pack: Callable[[Path, bytes], Path]
) -> None:
    format, rows = read_source(pack(tmp_path / "lastfm", LASTFM))
    assert format == "lastfm"
    assert entries(rows) == sorted(
        [
            (USER_1, "3bd73256-3905-4f3a-97e2-8b341527f805", 2137),
            (USER_1, '"weird al" yankovic', 12),
            (USER_1, 'die "ärzte', 5),
            (USER_2, "3bd73256-3905-4f3a-97e2-8b341527f805", 3),
            (USER_2, "björk", 0),
            (USER_2, "null", 1),
        ]
    )
    assert titles(rows)['"weird al" yankovic'] == '"weird al" yankovic'
    assert titles(rows)["3bd73256-3905-4f3a-97e2-8b341527f805"] == "Betty Blowtorch"  # the first in order of two


def test_lastfm_rows_that_are_left_out_are_counted_and_noted(tmp_path: Path) -> None:
    _, rows = read_source(lastfm_folder(tmp_path / "a", LASTFM))
    assert rows.dropped == {"rows_without_four_fields": 0, "rows_without_id_and_name": 1}
    assert rows.note == "left out: 1 rows with neither an id nor a name of the artist"
    ragged = LASTFM + b"a line\n\xff\xfe not UTF-8\n" + lastfm_line(USER_1, "", "tab\tin a name", 3)
    *_, result = prepare_source(lastfm_folder(tmp_path / "b", ragged), filters={"min_per_item": 1, "min_per_user": 1})
    expected = {"rows_in_source": 10, "rows_without_four_fields": 3, "rows_without_id_and_name": 1, "rows": 6}
    assert {name: result.counts[name] for name in expected} == expected
    assert len(LASTFM.splitlines()) + 3 == 10


def test_a_clean_lastfm_file_has_no_note(tmp_path: Path) -> None:
    _, rows = read_source(lastfm_folder(tmp_path, lastfm_line(USER_1, "", "abba", 3)))
    assert (rows.note, rows.n_in_source) == (None, 1)


def test_lastfm_gets_the_filters_of_the_paper(tmp_path: Path) -> None:
    """50 users play 20 artists; user 50 plays 19 of them and one of her own, which goes first and takes her with it."""
    lines = [lastfm_line(f"{user:040x}", "", f"artist {artist}", 3) for user in range(50) for artist in range(20)]
    lines += [lastfm_line(f"{50:040x}", "", f"artist {artist}", 3) for artist in range(19)]
    lines += [lastfm_line(f"{50:040x}", "", "her own", 3)]
    *_, filters, result = prepare_source(lastfm_targz(tmp_path / "lastfm", b"".join(lines)))
    assert (filters.min_per_item, filters.min_per_user, filters.adopt_min) == (50, 20, None)
    assert result.interactions.facts() == {"users": 50, "items": 20, "adopted": 1000, "rejected": 0, "density": 1.0}
    assert (result.counts["users_left_out"], result.counts["items_left_out"]) == (1, 1)
    assert set(result.interactions.adopted.data.tolist()) == {3.0}


def test_lastfm_with_text_for_plays_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_source(lastfm_folder(tmp_path, LASTFM + lastfm_line(USER_1, "", "abba", "many")))


# Damage


def big_movielens() -> Files:
    ratings = "".join(f"{n * 7919 % 311},{n * 104729 % 997},{n % 5 + 1}.0,{n * n}\n" for n in range(600))
    movies = "".join(f'{n},"Title {n * 31 % 17}, The",Drama\n' for n in range(200))
    return {
        "ml-20m/movies.csv": ("movieId,title,genres\n" + movies).encode(),
        "ml-20m/ratings.csv": ("userId,movieId,rating,timestamp\n" + ratings).encode(),
    }


def big_lastfm() -> bytes:
    return b"".join(lastfm_line(f"{n * 7919:040x}", "", f"artist {n * n}", n) for n in range(1, 400))


def flips(content: bytes, first: int, last: int, n: int) -> list[bytes]:
    """The content with one byte changed, at n places between first and last."""
    places = range(first, last, max((last - first) // n, 1))
    return [content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :] for place in places]


def cuts(content: bytes, n: int) -> list[bytes]:
    return [content[:place] for place in range(1, len(content) - 1, len(content) // n)]


def assert_refused(path: Path, damaged: list[bytes]) -> None:
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DataError):
            read_source(path)


def test_a_zip_archive_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    archive = as_zip(tmp_path / "ml-20m", big_movielens())
    assert_refused(archive, cuts(archive.read_bytes(), 30))


def test_a_zip_archive_with_a_changed_byte_in_its_ratings_is_refused(tmp_path: Path) -> None:
    archive = as_zip(tmp_path / "ml-20m", big_movielens())
    content = archive.read_bytes()
    start = content.index(b"ml-20m/ratings.csv") + 40
    end = content.index(b"PK\x01\x02") - 1
    assert_refused(archive, flips(content, start, end, 60))


def test_a_zip_archive_with_a_changed_byte_in_its_directory_is_never_more_than_a_data_error(tmp_path: Path) -> None:
    archive = as_zip(tmp_path / "ml-20m", big_movielens())
    content = archive.read_bytes()
    start = content.index(b"PK\x01\x02")
    for damaged in flips(content, start, len(content), len(content) - start):
        archive.write_bytes(damaged)
        try:
            _, rows = read_source(archive)
        except DataError:
            continue
        assert len(rows) == 600  # a date or an attribute has changed, and no more


def test_a_tar_gz_archive_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    archive = lastfm_targz(tmp_path / "lastfm", big_lastfm())
    assert_refused(archive, cuts(archive.read_bytes(), 30))


def test_a_tar_gz_archive_with_a_changed_byte_is_refused(tmp_path: Path) -> None:
    """gzip has its checksum at the end: a reader that stops early does not see the damage."""
    archive = lastfm_targz(tmp_path / "lastfm", big_lastfm())
    content = archive.read_bytes()
    assert_refused(archive, flips(content, 40, len(content) - 60, 40))


def test_the_original_netflix_archive_is_refused_when_damaged(tmp_path: Path) -> None:
    archive = netflix_original(tmp_path / "netflix")
    content = archive.read_bytes()
    assert_refused(archive, cuts(content, 20))
    assert_refused(archive, flips(content, 40, len(content) - 20, 20))


@pytest.mark.parametrize("cut", [512 + 30, 1024, 1024 + 100])
def test_a_tar_archive_that_is_cut_short_is_refused(tmp_path: Path, cut: int) -> None:
    """A movie is 512 bytes of header and 512 of content: cut within the first, after it, and in the next header."""
    archive = tmp_path / "training_set.tar"
    archive.write_bytes(tar_bytes(training_set())[:cut])
    with pytest.raises(DataError):
        read_source(archive)


@pytest.mark.parametrize("name", ["data.zip", "data.tar", "data.tar.gz", "data.gz"])
@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more", b"\x1f\x8b\x08 and no more"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError):
        read_source(tmp_path / name)


def test_nothing_is_unpacked_beside_the_archive(tmp_path: Path) -> None:
    read_source(netflix_original(tmp_path / "netflix"))
    assert [file.name for file in tmp_path.iterdir()] == ["nf_prize_dataset.tar.gz"]


# Which format


@pytest.mark.parametrize(
    ("files", "format"),
    [
        (["x/u.data"], "movielens"), (["ratings.dat"], "movielens"), (["a/ratings.csv", "a/movies.csv"], "movielens"),
        (["ratings.csv"], None), ([f"deep/er/{LASTFM_FILE}"], "lastfm"), (["mv_0000001.txt"], "netflix"),
        (["training_set.tar"], "netflix"), (["combined_data_1.txt"], "netflix"), (["thesis.tex"], None), ([], None),
    ],
)  # fmt: skip
def test_the_format_is_seen_by_the_files_inside(tmp_path: Path, files: list[str], format: str | None) -> None:
    assert detected(as_folder(tmp_path, dict.fromkeys(files, b""))) == format


def test_an_archive_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder"):
        detected(tmp_path / "absent.zip")
