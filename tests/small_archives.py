"""The large data sets of the paper are not available here: small archives of the same formats stand in for them."""

from pathlib import Path

import numpy as np

from data.test_archives import as_zip, lastfm_line, lastfm_targz, tar_bytes


def pairs() -> list[tuple[int, int]]:
    """130 users of two tastes, each with about half of 50 items."""
    random = np.random.default_rng(0)
    taste = (np.arange(130)[:, None] % 2) == (np.arange(50)[None, :] % 2)
    return [(int(user), int(item)) for user, item in np.argwhere(random.random((130, 50)) < np.where(taste, 0.8, 0.3))]


def ml_20m(folder: Path) -> Path:
    ratings = "".join(f"{user + 1},{item + 1},4.5,1112486027\n" for user, item in pairs())
    movies = "".join(f"{item + 1},Movie {item} (1999),Drama\n" for item in range(50))
    files = {
        "ml-20m/ratings.csv": ("userId,movieId,rating,timestamp\n" + ratings).encode(),
        "ml-20m/movies.csv": ("movieId,title,genres\n" + movies).encode(),
    }
    return as_zip(folder / "ml-20m", files)


def netflix(folder: Path) -> Path:
    blocks: dict[int, str] = {item: f"{item + 1}:\n" for item in range(50)}
    for user, item in pairs():
        blocks[item] += f"{user + 1},5,2005-09-06\n"
    inner = tar_bytes({f"training_set/mv_{item + 1:07d}.txt": text.encode() for item, text in blocks.items()})
    titles = "".join(f"{item + 1},2003,Movie {item}\n" for item in range(50)).encode()
    outer = {"download/training_set.tar": inner, "download/movie_titles.txt": titles}
    archive = folder / "nf_prize_dataset.tar.gz"
    archive.write_bytes(tar_bytes(outer, "gz"))
    return archive


def lastfm(folder: Path) -> Path:
    lines = (lastfm_line(f"{user:040x}", f"{item:036x}", f"artist {item}", 1 + item) for user, item in pairs())
    return lastfm_targz(folder / "lastfm", b"".join(lines))
