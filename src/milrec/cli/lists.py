"""The commands that ask a model: recommend, similar, items, export."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milrec.cli.options import (
    Cluster,
    Dial,
    DislikeCost,
    DislikesOf,
    LongBonus,
    LongShare,
    MeanPopularity,
    MediumShare,
    ModelClass,
    ShortShare,
    UnusedModelClass,
    aims_of,
    dislikes_of,
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
        str | None,
        typer.Option(help="Items of a new user, or new items of one --user: ID,ID,… (quote an id that has a comma)."),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="How often each of them was adopted: NUMBER,NUMBER,…")] = None,
    rejected: Annotated[str | None, typer.Option(help="Items that this user rejected: ID,ID,…")] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Skip unknown items of --adopted and --rejected, and name them.")
    ] = False,
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
    dislikes: DislikesOf = None,
    dislike_cost: DislikeCost = None,
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

    --user ID with --adopted ID,… makes a list for a known user who has adopted these items since the fit.

    Each row has position, item, title, score (the logit; higher is better), probability (that the user adopts the item,
    if they go on to adopt as much as was held out), popularity (adopters) and interval of the tail. Training and
    validation items are left out, so that lists can be measured on the test part; for lists that go live, give the
    whole data set with --known, and nothing that a user has or rejected is listed.

    A rule says how many items (or what share) of every list, or of its first places, come from the short, medium or
    long tail. A rule that cannot be met is met as far as possible; a note, or the column `unmet` of a file, then says
    so. --long-share is a mean over users instead: it takes tail items where they cost the fewest hits.
    """
    from milrec.lists.catalogue import refuse_unknown
    from milrec.lists.rules import Rule
    from milrec.storage import is_url, open_manifest

    users = _users(user, more_users)
    adopted = "" if users and rejected is not None and adopted is None else adopted
    _check_who(users, adopted, all)
    _refuse_without_adopted(adopted, {"--rejected": rejected, "--weights": weights, "--skip-unknown": skip_unknown})
    _refuse_other_places(model, out, all, cluster)
    taste = None if adopted is None else _taste(adopted, weights)
    rules = [Rule.parse(text) for text in rule or []]
    aims = aims_of(long_share, medium_share, short_share, mean_popularity, long_bonus)
    note_old_dial(dial)
    wishes: Wishes = {
        "allow": _allowed_in(allow),
        "exclude": _ids_in(exclude),
        "dial": dial,
        "rules": rules,
        "reasons": reasons,
        "dislikes": dislikes_of(dislikes, dislike_cost, cluster, model_class),
        **aims,
    }
    rejections = _ids_of(rejected or "", "--rejected")
    if not is_url(model):
        refuse_unknown(Path(model), users, [] if skip_unknown else [*(taste or []), *rejections])
    everything = None if known is None else open_manifest(known, "data")
    from milrec.cli.list_output import AskedLists, ModelPlace, Taste

    lists = AskedLists.load(ModelPlace.of(model), everything, named_classes(model_class), n, wishes)
    if cluster is not None and out is not None:
        lists.write_all_on(cluster, out, model_class or [])
        return
    lists = lists.leaving_out_known()
    if all and out is not None:
        lists.write_all(out)
    elif taste is not None:
        lists.give_new(Taste(taste, rejections, users[0] if users else None, skip_unknown), out)
    else:
        lists.give_known(users, out)


def _check_who(users: list[str], adopted: str | None, everybody: bool) -> None:
    """Refuse a command that does not say who a list is for, or says too much."""
    if (bool(users) or adopted is not None) == everybody:
        raise SettingsError("say who the list is for: --user ID, or --adopted ID,ID,…, or both, or --all alone")
    if adopted is not None and len(users) > 1:
        raise SettingsError(f"--adopted and --rejected describe one user; give one --user with them, not {len(users)}")


def _refuse_without_adopted(adopted: str | None, others: dict[str, str | bool | None]) -> None:
    for name, given in others.items():
        if adopted is None and given is not None and given is not False:
            raise SettingsError(f"{name} needs --adopted")


def _refuse_other_places(model: str, out: str | None, everybody: bool, cluster: str | None) -> None:
    """Refuse what does not go together: a few lists and a cluster, or one machine and object storage."""
    from milrec.lists.partitions import check_list_place
    from milrec.storage import is_url

    if everybody and out is None:
        raise SettingsError(f"--all needs --out FILE ({ANY_LIST_ENDING}) or --out FOLDER/")
    if cluster is not None and not everybody:
        raise SettingsError("--cluster needs --all; for a few lists, leave it out")
    if cluster is None and (is_url(model) or is_url(out or "")):
        raise SettingsError("object storage needs --cluster; without it, give a folder on this machine")
    check_list_place(out, everybody)


def similar(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    item: Annotated[str, typer.Argument(help="Item id.")],
    n: Annotated[int, typer.Option("-n", help="How many.", min=1)] = 20,
    model_class: ModelClass = None,
) -> None:
    """Show the items that are most like an item, according to the model.

    In the last column, 1 is the nearest that the model finds for this item; do not compare it between items.
    """
    from milrec.lists.catalogue import refuse_unknown

    refuse_unknown(model, items=[item])
    from milrec.cli.output import table_of_lists
    from milrec.recommender import Recommender

    table_of_lists(Recommender.load(model, named_classes(model_class)).similar_items(item, n))


def items(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    search: Annotated[str, typer.Option(help="Words of a title or how they begin, or an item id.")] = "",
    n: Annotated[int, typer.Option("-n", help="How many.", min=1)] = 20,
    model_class: UnusedModelClass = None,
) -> None:
    """Find items by title, the most popular first. If no title has these words, typos are forgiven."""
    import pyarrow as pa

    from milrec.cli.output import note, table_of_lists
    from milrec.lists.catalogue import Catalogue
    from milrec.lists.export import item_columns

    catalogue = Catalogue.load(model)
    found = catalogue.find_items(search, n)
    if search and not len(found):
        known = "no title or id matches" if catalogue.has_titles else "this model has no titles, and no id matches"
        note(f"{known} '{search}'")
    table_of_lists(pa.table(item_columns(catalogue, found)))


def _users(user: list[str] | None, more: list[str] | None) -> list[str]:
    if more and not user:
        raise SettingsError(f"'{more[0]}' is unexpected; name users with --user")
    return [*(user or []), *(more or [])]


def export(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    out: Annotated[Path, typer.Option(help="ONNX file to write, e.g. model.onnx.")],
    model_class: ModelClass = None,
) -> None:
    """Write a model as an ONNX file, for other programs and languages.

    The file takes what users adopted (0 or 1, or counts) or the number of a known user, and what they rejected if the
    model reads it; it gives a logit for every item, and holds the ids.
    """
    from milrec.cli.output import say
    from milrec.recommender import Recommender

    recommender = Recommender.load(model, named_classes(model_class))
    recommender.to_onnx(out)
    fitted = recommender.fitted
    say(f"{fitted.settings.model.model}, {fitted.train.n_items:,} items → {out}")


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
        raise SettingsError(f"--weights and --adopted must have equally many entries, not {len(values)} and {len(ids)}")
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


def _allowed_in(path: Path | None) -> list[str] | None:
    ids = _ids_in(path)
    if ids == []:
        raise SettingsError(f"'{path}' contains no ids, so nothing could be listed")
    return ids


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
