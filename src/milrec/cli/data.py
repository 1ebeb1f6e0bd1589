"""The commands that make data and splits: download, simulate, prepare, split."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milrec.cli.errors import in_options
from milrec.cli.options import Cluster, Force, reserving
from milrec.data.downloads import NAMES
from milrec.data.reading.formats import Format
from milrec.errors import SettingsError

if TYPE_CHECKING:
    from milrec.cluster.preparation import Nodes


class RoundingName(StrEnum):
    nearest = "nearest"
    down = "down"


class ProtocolName(StrEnum):
    interactions = "interactions"
    users = "users"


def download(
    name: Annotated[str, typer.Argument(help=", ".join(NAMES))],
    out: Annotated[Path, typer.Option(help="Folder for the archive.")] = Path(),
) -> None:
    """Download a public data set, after showing its terms; an interrupted download is resumed."""
    from milrec.cli.output import say
    from milrec.cli.progress import bytes_bar
    from milrec.data.downloads import known_download
    from milrec.data.fetch import fetch

    wanted = known_download(name)
    say(wanted.terms)
    with bytes_bar(wanted.file_name) as report:
        archive = fetch(wanted, out, report)
    say(f"Downloaded and checked: {archive}")
    say(f"Next: milrec prepare {archive} --out {name}")


@reserving("data")
def simulate(
    out: Annotated[Path, typer.Option(help="Data folder to write.")],
    users: Annotated[int, typer.Option(help="Number of users.")] = 2_000,
    items: Annotated[int, typer.Option(help="Number of items.")] = 1_200,
    seed: Annotated[int, typer.Option(help="Same seed, same catalogue.", min=0)] = 0,
    force: Force = False,
) -> None:
    """Make a catalogue with titles, genres, a heavy popularity tail and known true preferences."""
    from milrec.cli.output import facts_table
    from milrec.data.simulation import Simulation
    from milrec.data.simulation import simulate as simulated

    data = simulated(Simulation(n_users=users, n_items=items), seed)
    data.save(out, {"source": f"simulation, seed {seed}"}, replace=force)
    facts_table(f"Simulated → {out}", data.facts())


@reserving("data")
def prepare(
    source: Annotated[
        Path,
        typer.Argument(
            help="A CSV/TSV or Parquet file, a folder of such files or a pattern ('events/*.csv.gz'), of any size; "
            "or the original archive or folder of a data set."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Data folder to write.")],
    format: Annotated[Format, typer.Option(help="How to read the source.")] = Format.auto,
    user: Annotated[str | None, typer.Option(help="Column of users. Recognised: user, user_id, userId, …")] = None,
    item: Annotated[str | None, typer.Option(help="Column of items. Recognised: item, item_id, movieId, …")] = None,
    value: Annotated[
        str | None, typer.Option(help="Column of ratings or counts. Without it, every row is adopted.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of times; if a user rates an item again, the last rating counts.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Column of item titles, if the table has one.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Only rows with this value, e.g. test=0; if repeated, rows must match all.",
        ),
    ] = None,
    adopt_min: Annotated[float | None, typer.Option(help="Ratings of this or more count as adopted.")] = None,
    reject_max: Annotated[float | None, typer.Option(help="Ratings of this or less count as rejected.")] = None,
    min_per_user: Annotated[int | None, typer.Option(help="Adopted items that a user must have.", min=1)] = None,
    min_per_item: Annotated[
        int | None, typer.Option(help="Adopters that an item must have; 0 keeps items that are only rejected.", min=0)
    ] = None,
    titles: Annotated[Path | None, typer.Option(help="CSV or Parquet file with items and titles.")] = None,
    multiline: Annotated[bool, typer.Option("--multiline", help="Fields in quotes may have several lines.")] = False,
    max_expansion: Annotated[
        float, typer.Option(help="How many times its own size a packed file may unpack to.", min=1)
    ] = 100,
    cluster: Cluster = None,
    force: Force = False,
) -> None:
    """Read interactions into a data folder: apply thresholds and filters, merge and count duplicates."""
    from milrec.cli.output import facts_table, note
    from milrec.cli.progress import progress_bar
    from milrec.data.preparation import Wanted, prepare_folder
    from milrec.data.reading.columns import VALUE_NAMES, Columns
    from milrec.data.reading.read import parse_conditions
    from milrec.data.reading.sources import Allowed
    from milrec.data.sample_size import too_small

    own = {"adopt_min": adopt_min, "reject_max": reject_max, "min_per_user": min_per_user, "min_per_item": min_per_item}
    columns = Columns(user, item, value, time, parse_conditions(where or []), title)
    wanted = Wanted(format.value, columns, titles, own, Allowed(multiline, max_expansion))
    with hands_of(cluster) as hands, progress_bar("Reading", "rows") as report:
        prepared = prepare_folder(source, wanted, out, lambda rows: report(rows, None), replace=force, hands=hands)
    if prepared.note:
        note(in_options(prepared.note))
    if value in VALUE_NAMES[:4] and not prepared.filters.are_thresholds:
        note(f"column '{value}' is read as counts: rows above 0 are adopted; if these are ratings, give --adopt-min")
    if small := too_small(source.name, prepared.sizes["users"], prepared.sizes["adopted"]):
        note(small)
    limits = ", ".join(f"{name} {limit:g}" for name, limit in prepared.filters.chosen().items())
    facts = {name: value for name, value in prepared.facts.items() if name != "note"}
    facts_table(f"Prepared → {out}", {**facts, "filters": limits, **prepared.sizes})


@contextmanager
def hands_of(address: str | None) -> Iterator[Nodes | None]:
    """The nodes of a cluster, where one is named."""
    if address is None:
        yield None
        return
    from milrec.cli.output import note
    from milrec.cluster.preparation import Nodes
    from milrec.cluster.session import joined

    with joined(address) as cluster:
        note(str(cluster))
        yield Nodes(cluster)


@reserving("split")
def split(
    data: Annotated[Path, typer.Argument(help="Data folder from prepare or simulate.")],
    out: Annotated[Path, typer.Option(help="Split folder to write.")],
    protocol: Annotated[
        ProtocolName, typer.Option(help="80/10/10 over interactions, or held-out users (80 % given, 20 % to find).")
    ] = ProtocolName.interactions,
    test: Annotated[
        Path | None, typer.Option(help="Data folder to use as the test part: later rows, or rows marked for it.")
    ] = None,
    held_out: Annotated[
        float | None, typer.Option(help="Share of pairs for validation (0.1); without --test, the same again for test.")
    ] = None,
    like_test: Annotated[
        bool,
        typer.Option(
            "--like-test", help="Draw validation with as many pairs of popular and of rare items as --test has."
        ),
    ] = False,
    rounding: Annotated[
        RoundingName,
        typer.Option(help="Round the 20 % that held-out users' lists must find to the nearest number, or down."),
    ] = RoundingName.nearest,
    seed: Annotated[int, typer.Option(help="Same seed, same split.", min=0)] = 0,
    force: Force = False,
) -> None:
    """Hold out a validation and a test part, or only a validation part if the data has its own test part (--test).

    Pairs of such a test part are dropped and counted if their user is not in DATA, if they are in DATA themselves, or
    if their item has no training interaction.
    """
    from milrec.cli.output import facts_table
    from milrec.data.interactions import Interactions
    from milrec.data.splits import split_given, split_interactions, split_users
    from milrec.storage import opened_folder

    with opened_folder(data, "data") as manifest:
        whole, share = Interactions.read_from(manifest), 0.1 if held_out is None else held_out
    facts = {"source": manifest.facts.get("source"), "data_fingerprint": manifest.fingerprint()}
    if protocol is ProtocolName.users and (test is not None or held_out is not None):
        raise SettingsError("--protocol users holds out a tenth of the users; leave out --test and --held-out")
    if protocol is not ProtocolName.users and rounding is not RoundingName.nearest:
        raise SettingsError("--rounding needs --protocol users")
    if like_test and test is None:
        raise SettingsError("--like-test needs a test part; give it with --test")
    if test is not None:
        with opened_folder(test, "data") as given:
            later = Interactions.read_from(given)
        facts |= {"test_source": given.facts.get("source"), "test_fingerprint": given.fingerprint()}
        divided = split_given(whole, later, seed, share, like_test=like_test)
    elif protocol is ProtocolName.users:
        divided = split_users(whole, seed, rounding=rounding.value)
    else:
        divided = split_interactions(whole, seed, share)
    divided.save(out, facts, replace=force)
    facts_table(f"Split → {out}", divided.facts())
