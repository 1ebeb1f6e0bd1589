"""A simulated catalogue whose true preferences are known.

Every item has genres, a quality and a marketing power; every user has a taste for genres. The true preference is
low-rank: σ(taste · traits + quality). What a user is *shown*, on a front page for everyone or while browsing a genre,
is biased towards items with marketing power, a heavy tail that has little to do with quality. Adopted = shown and
liked; some of what was shown and not liked is rejected explicitly. So most missing pairs were never seen, and the truth
says which of them would have been liked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array

from milrec.data.interactions import Interactions, Truth, check_not_empty, generator
from milrec.data.pairs import pairs_matrix
from milrec.errors import SettingsError

GENRES = (
    "Adventure", "Animation", "Comedy", "Crime", "Documentary", "Drama",
    "Family", "Fantasy", "History", "Music", "Mystery", "Romance", "Science fiction", "Thriller",
)  # fmt: skip
_ADJECTIVES = (
    "Amber", "Borrowed", "Broken", "Crimson", "Distant", "Electric", "Endless", "Fallen", "Forgotten", "Frozen",
    "Gentle", "Golden", "Hidden", "Hollow", "Invisible", "Last", "Little", "Lonely", "Lost", "Midnight",
    "Northern", "Paper", "Quiet", "Restless", "Scarlet", "Second", "Secret", "Silent", "Silver", "Sleepless",
    "Strange", "Sudden", "Tender", "Unwritten", "Velvet", "Wandering", "White", "Wild", "Winter", "Wooden",
)  # fmt: skip
_NOUNS = (
    "Archive", "Atlas", "Bridge", "Canary", "Carnival", "Cartographer", "Clockmaker", "Comet", "Daughter", "Detective",
    "Engine", "Evening", "Garden", "Ghost", "Harbour", "Horizon", "Island", "Journey", "Lantern", "Letter",
    "Library", "Machine", "Meadow", "Mirror", "Mountain", "Neighbour", "Ocean", "Orchard", "Painter", "Pilot",
    "Promise", "River", "Season", "Shadow", "Signal", "Station", "Stranger", "Summer", "Thief", "Witness",
)  # fmt: skip
_BLOCK = 2_000


@dataclass(frozen=True)
class Simulation:
    """The size and character of a simulated catalogue."""

    n_users: int = 2_000
    n_items: int = 1_200
    mean_shown: float = 180.0  # items shown to a user, on average
    exposure_exponent: float = 0.9  # how steeply exposure falls with rank: the heavy tail
    browsing: float = 0.5  # share of what is shown while browsing a favourite genre; the rest is on the front page
    quality_in_exposure: float = 0.6  # how much more a good item is shown
    rejection_rate: float = 0.25  # share of what was shown and not liked that is rejected explicitly

    def __post_init__(self) -> None:
        if self.n_users < 2 or self.n_items < 2:
            raise SettingsError(
                f"a simulation needs at least 2 users and 2 items, not {self.n_users} and {self.n_items}"
            )
        if max(self.n_users, self.n_items) > 10**9:
            raise SettingsError("a simulation has at most a billion users and items")
        if not 0 < self.mean_shown < 1e9:
            raise SettingsError(f"mean_shown must be above 0, not {self.mean_shown:g}")
        for name in ("browsing", "rejection_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"{name} must be a share between 0 and 1, not {getattr(self, name):g}")


class _Shown(NamedTuple):
    """Pairs that were shown: whether the user adopted the item, and whether the user rejected it."""

    users: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    adopted: npt.NDArray[np.bool_]
    rejected: npt.NDArray[np.bool_]

    def matrix(self, chosen: npt.NDArray[np.bool_], shape: tuple[int, int]) -> csr_array:
        return pairs_matrix(self.users[chosen], self.items[chosen], np.ones(int(chosen.sum())), shape)


def simulate(simulation: Simulation, seed: int) -> Interactions:
    """Interactions with titles, genres, rejections and the truth; the same for the same seed."""
    random = generator(seed, 5)
    genres = _item_genres(simulation.n_items, random)  # (n_items, n_genres)
    quality = random.normal(0, 0.7, simulation.n_items)
    loved, disliked = _tastes(simulation.n_users, random)  # (n_users, n_genres) each
    truth = Truth(
        user_factors=(6.0 * loved - 2.0 * disliked).astype(np.float32),
        item_factors=_traits(genres, random).astype(np.float32),
        item_offsets=(quality - 1.8).astype(np.float32),
    )
    chances = _exposure(simulation, quality, genres, random)  # (n_genres + 1, n_items)
    blocks = []
    for start in range(0, simulation.n_users, _BLOCK):
        block = np.arange(start, min(start + _BLOCK, simulation.n_users))
        users, items = _shown_pairs(block, loved[block], chances, simulation, random)
        liked = random.random(len(users)) < truth.pair_preference(users, items)
        rejecting = random.random(len(users)) < simulation.rejection_rate
        blocks.append(_Shown(users, items, liked, ~liked & rejecting))
    return _interactions(truth, genres, random, _Shown(*map(np.concatenate, zip(*blocks, strict=True))))


def _item_genres(n_items: int, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """One or two genres for each item, some genres larger than others."""
    size = random.dirichlet(np.full(len(GENRES), 2.0))
    first = random.choice(len(GENRES), n_items, p=size)
    second = random.choice(len(GENRES), n_items, p=size)
    genres = np.zeros((n_items, len(GENRES)), dtype=bool)
    genres[np.arange(n_items), first] = True
    both = random.random(n_items) < 0.5
    genres[np.flatnonzero(both), second[both]] = True
    return genres


def _traits(genres: npt.NDArray[np.bool_], random: np.random.Generator) -> npt.NDArray[np.float64]:
    """What an item is like: its genres, each a direction, and something of its own."""
    n_traits = len(GENRES)
    directions = random.normal(0, 1, (n_traits, n_traits)) / np.sqrt(n_traits) + 1.5 * np.eye(n_traits)
    shared = genres @ directions / np.sqrt(genres.sum(axis=1, keepdims=True))
    traits: npt.NDArray[np.float64] = shared + random.normal(0, 0.35, shared.shape)
    return traits


def _tastes(n_users: int, random: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """How much each user loves and dislikes each genre: a few a lot, the others hardly at all."""
    loved = random.dirichlet(np.full(len(GENRES), 0.2), n_users)
    disliked = random.dirichlet(np.full(len(GENRES), 0.3), n_users)
    return loved, disliked


def _exposure(
    simulation: Simulation,
    quality: npt.NDArray[np.float64],
    genres: npt.NDArray[np.bool_],
    random: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """Cumulative chances of being shown next: a row for each genre, and the front page last.

    An item's chance is a power of its rank by marketing power and, to a lesser degree, by quality.
    """
    power = random.normal(0, 1, simulation.n_items) + simulation.quality_in_exposure * quality
    rank = np.empty(simulation.n_items)
    rank[np.argsort(-power)] = np.arange(1, simulation.n_items + 1)
    weight = (rank + 3.0) ** -simulation.exposure_exponent
    weights = np.concatenate([genres.T * weight, weight[None, :]])  # (n_genres + 1, n_items)
    weights[weights.sum(axis=1) == 0] = weight  # a genre without items shows the front page
    cumulative: npt.NDArray[np.float64] = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    return cumulative


def _shown_pairs(
    block: npt.NDArray[np.int64],
    loved: npt.NDArray[np.float64],
    chances: npt.NDArray[np.float64],
    simulation: Simulation,
    random: np.random.Generator,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct items shown to each user of a block; the work grows with what is shown, not with the catalogue."""
    activity = random.lognormal(-0.32, 0.8, len(block))  # mean 1, heavy tail
    n_shown = np.maximum(random.poisson(simulation.mean_shown * activity), 8)
    places = np.repeat(np.arange(len(block)), n_shown)
    page = _pages(places, loved, simulation.browsing, random)
    items = np.empty(len(places), dtype=np.int64)
    for number, cumulative in enumerate(chances):
        here = page == number
        items[here] = np.searchsorted(cumulative, random.random(int(here.sum())), side="right")
    items = np.minimum(items, simulation.n_items - 1)
    cells = np.unique(block[places] * simulation.n_items + items)
    pair_users, pair_items = np.divmod(cells, simulation.n_items)
    return pair_users, pair_items


def _pages(
    places: npt.NDArray[np.int64],
    loved: npt.NDArray[np.float64],
    browsing: float,
    random: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Where each item is shown: the number of a genre, drawn by the user's love for it, or the front page."""
    cumulative = np.cumsum(loved, axis=1)[places]  # (n_shown, n_genres)
    genre = (random.random(len(places))[:, None] > cumulative).sum(axis=1)
    front_page = random.random(len(places)) >= browsing
    return np.where(front_page, len(GENRES), np.minimum(genre, len(GENRES) - 1))


def _interactions(
    truth: Truth,
    genres: npt.NDArray[np.bool_],
    random: np.random.Generator,
    shown: _Shown,
) -> Interactions:
    shape = (len(truth.user_factors), len(truth.item_factors))
    whole = Interactions(
        adopted=shown.matrix(shown.adopted, shape),
        rejected=shown.matrix(shown.rejected, shape),
        users=pa.table({"id": _numbered("u", shape[0])}),
        items=pa.table(
            {
                "id": _numbered("i", shape[1]),
                "title": pa.array(_titles(shape[1], random), type=pa.large_string()),
                "genres": pa.array([_genre_names(row) for row in genres], type=pa.large_string()),
            }
        ),
        truth=truth,
    )
    enough = np.diff(whole.adopted.indptr) >= 5
    kept = whole.subset(enough, np.ones(shape[1], dtype=bool))
    return check_not_empty(
        kept.subset(np.ones(kept.n_users, dtype=bool), kept.popularity() > 0),
        "the simulation, in which a user needs 5 adopted items,",
    )


def _numbered(prefix: str, count: int) -> pa.Array:
    width = len(str(count))
    return pa.array([f"{prefix}{number:0{width}d}" for number in range(1, count + 1)], type=pa.large_string())


def _genre_names(row: npt.NDArray[np.bool_]) -> str:
    return "|".join(GENRES[number] for number in np.flatnonzero(row))


def _titles(n_items: int, random: np.random.Generator) -> list[str]:
    """Distinct made-up titles: words that come again get another year, then a part number."""
    adjectives = random.integers(len(_ADJECTIVES), size=n_items)
    nouns = random.integers(len(_NOUNS), size=n_items)
    years = random.integers(1950, 2027, size=n_items)
    titles: list[str] = []
    seen: dict[str, int] = {}
    for adjective, noun, year in zip(adjectives, nouns, years, strict=True):
        title = f"The {_ADJECTIVES[adjective]} {_NOUNS[noun]} ({year})"
        seen[title] = seen.get(title, 0) + 1
        titles.append(title if seen[title] == 1 else f"{title[:-7]} {seen[title]} ({year})")
    return titles
