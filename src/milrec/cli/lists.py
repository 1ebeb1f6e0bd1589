"""The commands that make lists and look up items: recommend, similar, items."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milrec.cli.options import (
    Cluster,
    Dial,
    LongBonus,
    LongShare,
    MeanPopularity,
    MediumShare,
    ModelClass,
    ShortShare,
    aims_of,
    named_classes,
    note_old_dial,
)
from milrec.data.reading.formats import ANY_LIST_ENDING
from milrec.errors import SettingsError

if TYPE_CHECKING:
    from milrec.lists.query import Wishes


def recommend(
    model: Annotated[str, typer.Argument(help="Model folder; with --cluster also s3://… or gs://…", metavar="MODEL")],
    more_users: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="More users, after --user.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="A known user; may be repeated.")] = None,
    adopted: Annotated[
        str | None, typer.Option(help="Items of a new user: ID,ID,… (quote an id that has a comma).")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="How often the new user adopted each of them: NUMBER,NUMBER,…")
    ] = None,
    rejected: Annotated[str | None, typer.Option(help="Items that the new user rejected: ID,ID,…")] = None,
    all: Annotated[bool, typer.Option("--all", help="Every known user; needs --out.")] = False,
    n: Annotated[int, typer.Option("-n", help="Length of a list.", min=1)] = 20,
    allow: Annotated[
        Path | None, typer.Option(help="File with the only items that may be listed, one id per line.")
    ] = None,
    exclude: Annotated[
        Path | None, typer.Option(help="File with items that may not be listed, one id per line.")
    ] = None,
    known: Annotated[
        Path | None, typer.Option(help="Data folder: items that users have or rejected there are never listed.")
    ] = None,
    long_share: LongShare = None,
    medium_share: MediumShare = None,
    short_share: ShortShare = None,
    mean_popularity: MeanPopularity = None,
    long_bonus: LongBonus = None,
    dial: Dial = 0.0,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="E.g. 'long >= 30%' or 'short <= 2 in 10'; may be repeated, and earlier rules win."),
    ] = None,
    reasons: Annotated[int, typer.Option(help="How many adopted items to name as reasons for each item.", min=0)] = 0,
    out: Annotated[
        str | None,
        typer.Option(
            help=f"Write to a {ANY_LIST_ENDING} file instead; with --all also FOLDER/, a Parquet file for every 65,536 "
            "users and a manifest, and with --cluster s3://…",
            metavar="FILE",
        ),
    ] = None,
    cluster: Cluster = None,
    model_class: ModelClass = None,
) -> None:
    """Make lists: for known users, for a new user from adopted items, or for all users in one table.

    Each row has rank, item, title, score (the logit; higher is better), probability (that the user adopts the item,
    if they go on to adopt as much as was held out), popularity (adopters) and tail interval. Training and validation
    items are left out, so that lists can be measured on the test part; for lists that go live, give the whole data set
    with --known, and nothing that a user has or rejected is listed.
    A rule says how many items (or what share) of every list, or of its first places, come from the short, medium or
    long tail. A rule that cannot be met is met as far as possible; a note, or the column `unmet` of a file, then says
    so. --long-share is a mean over users instead: it takes tail items where they cost the fewest hits.
    """
    from milrec.lists.rules import Rule
    from milrec.storage import is_url, open_folder

    users = _users(user, more_users)
    if sum([bool(users), adopted is not None, all]) != 1:
        raise SettingsError("say who the list is for, in one way: --user ID, or --adopted ID,ID,…, or --all")
    _refuse_without("--adopted", adopted, {"--rejected": rejected, "--weights": weights})
    _refuse_other_places(model, out, all, cluster)
    taste = None if adopted is None else _taste(adopted, weights)
    rules = [Rule.parse(text) for text in rule or []]
    aims = aims_of(long_share, medium_share, short_share, mean_popularity, long_bonus)
    note_old_dial(dial)
    allowed, excluded = _ids_in(allow), _ids_in(exclude)
    if allowed == []:
        raise SettingsError(f"'{allow}' allows nothing: it contains no id")
    wishes: Wishes = {"allow": allowed, "exclude": excluded, "dial": dial, "rules": rules, "reasons": reasons, **aims}
    if not is_url(model):
        open_folder(Path(model), "model")
    everything = None if known is None else open_folder(known, "data")
    from milrec.cli.list_output import AskedLists, ModelPlace

    lists = AskedLists.load(ModelPlace.of(model), everything, named_classes(model_class), n, wishes)
    if cluster is not None and out is not None:
        lists.write_all_on(cluster, out, model_class or [])
        return
    lists = lists.leaving_out_known()
    if all and out is not None:
        lists.write_all(out)
    elif taste is not None:
        lists.give_new(taste, _ids_of(rejected or "", "--rejected"), out)
    else:
        lists.give_known(users, out)


def _refuse_without(needed: str, value: str | None, others: dict[str, str | None]) -> None:
    for name, given in others.items():
        if given is not None and value is None:
            raise SettingsError(f"{name} needs {needed}; what known users adopted and rejected is known")


def _refuse_other_places(model: str, out: str | None, everybody: bool, cluster: str | None) -> None:
    """Refuse what does not go together: a few lists and a cluster, or one machine and object storage."""
    from milrec.lists.partitions import check_list_place
    from milrec.storage import is_url

    if everybody and out is None:
        raise SettingsError(f"--all needs --out FILE ({ANY_LIST_ENDING}) or --out FOLDER/")
    if cluster is not None and not everybody:
        raise SettingsError("--cluster is for --all; a few lists take longer to hand out than to make")
    if cluster is None and (is_url(model) or is_url(out or "")):
        raise SettingsError("object storage is for --cluster; one machine reads and writes folders of its own")
    check_list_place(out, everybody)


def similar(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    item: Annotated[str, typer.Argument(help="Item id.")],
    n: Annotated[int, typer.Option("-n", help="How many.", min=1)] = 20,
    model_class: ModelClass = None,
) -> None:
    """Show the items that are most like an item, according to the model."""
    from milrec.storage import open_folder

    open_folder(model, "model")
    from milrec.cli.output import table_of_lists
    from milrec.recommender import Recommender

    table_of_lists(Recommender.load(model, named_classes(model_class)).similar_items(item, n))


def items(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    search: Annotated[str, typer.Option(help="Words of a title or how they begin, or an item id.")] = "",
    n: Annotated[int, typer.Option("-n", help="How many.", min=1)] = 20,
    model_class: ModelClass = None,
) -> None:
    """Find items by title, the most popular first."""
    from milrec.storage import open_folder

    open_folder(model, "model")
    from milrec.cli.output import table_of_lists
    from milrec.recommender import Recommender

    table_of_lists(Recommender.load(model, named_classes(model_class)).find_items(search, n))


def _users(user: list[str] | None, more: list[str] | None) -> list[str]:
    if more and not user:
        raise SettingsError(f"'{more[0]}' is unexpected; name users with --user")
    return [*(user or []), *(more or [])]


def _taste(adopted: str, weights: str | None) -> list[str] | dict[str, float]:
    """The items of a new user, with their weights where these are given."""
    ids = _ids_of(adopted, "--adopted")
    if weights is None:
        return ids
    numbers = _ids_of(weights, "--weights")
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        raise SettingsError("--weights needs numbers separated by commas, e.g. 12,3") from None
    if len(values) != len(ids):
        raise SettingsError(f"--weights and --adopted must have as many entries, not {len(values)} and {len(ids)}")
    if len(set(ids)) < len(ids):
        raise SettingsError("with --weights, each item of --adopted must be given once")
    return dict(zip(ids, values, strict=True))


def _ids_of(text: str, option: str) -> list[str]:
    """Ids separated by commas; an id that contains a comma is in double quotes."""
    try:
        rows = list(csv.reader([text], strict=True))
    except csv.Error:
        raise SettingsError(f"{option} needs ids separated by commas, with quotes only around a whole id") from None
    return [field for row in rows for field in row if field != ""]


def _ids_in(path: Path | None) -> list[str] | None:
    """One id per line, exactly as written."""
    if path is None:
        return None
    if path.exists() and not path.is_file():
        raise SettingsError(f"'{path}' is not a file with one id per line")
    try:
        text = path.read_text(encoding="utf-8-sig")  # turns every line end into \n, and nothing else
    except FileNotFoundError:
        raise SettingsError(f"there is no file '{path}'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"'{path}' cannot be read ({error})") from None
    return [line for line in text.split("\n") if line]
