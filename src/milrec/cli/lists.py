"""The commands that make lists and look up items: recommend, similar, items."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer

from milrec.cli.options import Dial, ModelClass, named_classes
from milrec.data.formats import ANY_LIST_ENDING
from milrec.errors import SettingsError


def recommend(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    more_users: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="More users, after --user.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="A known user; may be repeated.")] = None,
    adopted: Annotated[
        str | None, typer.Option(help="Items of a new user: ID,ID,… (quote an id that has a comma).")
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
    dial: Dial = 0.0,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="E.g. 'long >= 30%' or 'short <= 2 in 10'; may be repeated, and earlier rules win."),
    ] = None,
    reasons: Annotated[int, typer.Option(help="How many adopted items to name as reasons for each item.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help=f"Write to a {ANY_LIST_ENDING} file instead.")] = None,
    model_class: ModelClass = None,
) -> None:
    """Make lists: for known users, for a new user from adopted items, or for all users in one table.

    Each row has rank, item, title, score (the logit minus the dial's part; higher is better), popularity (adopters)
    and tail interval. Training and validation items are left out, so that lists can be measured on the test part; for
    lists that go live, give the whole data set with --known, and nothing that a user has or rejected is listed.
    A rule says how many items (or what share) of a list, or of its first places, come from the short, medium or long
    tail. A rule that cannot be met is met as far as possible; a note, or the column `unmet` of a file, then says so.
    """
    from milrec.data.interactions import Interactions
    from milrec.lists.export import check_list_file, write_batches
    from milrec.lists.rules import Rule
    from milrec.storage import open_folder

    users = [*(user or []), *(more_users or [])]
    if more_users and not user:
        raise SettingsError(f"'{more_users[0]}' is unexpected; name users with --user")
    if sum([bool(users), adopted is not None, all]) != 1:
        raise SettingsError("say who the list is for, in one way: --user ID, or --adopted ID,ID,…, or --all")
    if rejected is not None and adopted is None:
        raise SettingsError("--rejected needs --adopted; the rejected items of known users are known")
    if all and out is None:
        raise SettingsError(f"--all needs --out FILE ({ANY_LIST_ENDING})")
    rules = [Rule.parse(text) for text in rule or []]
    allowed, excluded = _ids_in(allow), _ids_in(exclude)
    if allowed == []:
        raise SettingsError(f"'{allow}' allows nothing: it contains no id")
    if out is not None:
        check_list_file(out)
    open_folder(model, "model")
    everything = None if known is None else open_folder(known, "data")
    from milrec.cli.output import note, say, table_of_lists
    from milrec.cli.progress import progress_bar
    from milrec.recommender import Recommender

    recommender = Recommender.load(model, named_classes(model_class))
    if everything is not None:
        recommender = recommender.leaving_out(Interactions.read_from(everything))
    for name, ids in (("allow", allowed), ("exclude", excluded)):
        if ids is not None and (outside := recommender.outside_catalogue(ids)):
            note(f"{outside} of {len(ids)} ids in the {name} file are not in the catalogue")
    unmet: list[str] = []

    def keep_unmet(who: object, sentences: str) -> None:
        unmet.append(sentences if who is None else f"user '{who}': {sentences}")

    how = (n, allowed, excluded, dial, rules, reasons, keep_unmet)
    if all:
        assert out is not None
        total = recommender.fitted.train.n_users
        with progress_bar("Listing", "users") as report:
            rows = write_batches(out, recommender.recommend_all(*how), lambda done: report(min(done, total), total))
        say(f"{rows:,} rows for {total:,} users → {out}")
        if unmet:
            note(f"{len(unmet):,} of {total:,} lists do not meet every rule or lack reasons; see the column unmet")
        return
    if adopted is not None:
        lists = recommender.recommend_new(_ids_of(adopted), _ids_of(rejected or ""), *how)
    else:
        lists = recommender.recommend(users, *how)
    if out is not None:
        rows = write_batches(out, lists.to_batches(), schema=lists.schema)
        say(f"{rows:,} rows → {out}")
    else:
        table_of_lists(lists.drop_columns("unmet") if rules or reasons else lists)
    for sentences in unmet:
        note(sentences)


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


def _ids_of(text: str) -> list[str]:
    """Ids separated by commas; an id that contains a comma is in double quotes."""
    return [field for row in csv.reader([text]) for field in row if field != ""]


def _ids_in(path: Path | None) -> list[str] | None:
    """One id per line, exactly as written."""
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise SettingsError(f"there is no file '{path}'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"'{path}' cannot be read ({error})") from None
    return [line for line in lines if line]
