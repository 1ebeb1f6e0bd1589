"""The commands fit and evaluate."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milrec.cli.options import (
    Cluster,
    Dial,
    DislikeCost,
    DislikesOf,
    Force,
    LongBonus,
    LongShare,
    MeanPopularity,
    MediumShare,
    ModelClass,
    ShortShare,
    aims_of,
    dislikes_of,
    named_classes,
    note_old_dial,
)
from milrec.data.roles import REJECTIONS
from milrec.errors import SettingsError
from milrec.losses import LOSSES
from milrec.models.settings import MODELS

if TYPE_CHECKING:
    from milrec.evaluation.evaluation import Evaluation
    from milrec.evaluation.similar import SimilarEvaluation
    from milrec.probability.aims import Aims
    from milrec.recommender import Recommender


class Predicted(StrEnum):
    adoptions = "adoptions"
    rejections = "rejections"


class PartName(StrEnum):
    validation = "validation"
    test = "test"


def fit(
    split: Annotated[Path, typer.Argument(help="Split folder.")],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    model: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(MODELS)}, dae-large, or a model of the paper: see milrec models."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help=", ".join(sorted(LOSSES)))] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting by name, e.g. epochs=30; may be repeated. They are listed below.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    predict: Annotated[
        Predicted,
        typer.Option(
            help="What to learn: adoptions, or rejections, for `recommend --dislikes`; the latter with the defaults "
            "--loss pointwise and reads_rejected=true.",
            metavar="<what>",
        ),
    ] = Predicted.adoptions,
    seed: Annotated[int, typer.Option(help="Same seed, same weights.", min=0)] = 0,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="Then fit again on training + validation, for as many steps as validation chose."),
    ] = False,
    without_users: Annotated[
        bool,
        typer.Option("--without-users", help="Keep no user ids and no interactions in MODEL: for new users only."),
    ] = False,
    model_class: ModelClass = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted fit.")] = False,
    cluster: Cluster = None,
    force: Force = False,
) -> None:
    """Fit a model; by default a denoising autoencoder with the missing information loss and early stopping."""
    from milrec.cli.folder_fit import FolderFit, SharedFit
    from milrec.settings import parse_assignments
    from milrec.training.presets import dislike_settings, settings_for

    encoders = named_classes(model_class)
    if model is None and len(encoders) > 1:
        raise SettingsError("--model-class names several classes; choose one with --model NAME")
    own = encoders[0] if model is None and encoders else model
    values, of_rejections = parse_assignments(set or []), predict is Predicted.rejections
    if of_rejections and cluster is not None:
        raise SettingsError("--predict rejections works on one machine; leave --cluster out")
    if of_rejections and own in (None, "dae"):
        settings = dislike_settings(loss, values)
    else:
        settings = settings_for(own, loss, values, encoders)
    if encoders and settings.model.model in MODELS:
        raise SettingsError(
            f"--model {model} is one of milrec's own models; give only one of --model and --model-class"
        )
    shared = None if cluster is None else SharedFit(cluster, model_class or [])
    FolderFit(split, out, settings, seed, refit, without_users, of_rejections, shared).run(resume, force)


def evaluate(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    split: Annotated[Path, typer.Argument(help="The split folder that the model was fitted to.")],
    on: Annotated[PartName, typer.Option(help="The part to evaluate on.")] = PartName.test,
    json: Annotated[Path | None, typer.Option(help="Write all measures to this file.")] = None,
    long_share: LongShare = None,
    medium_share: MediumShare = None,
    short_share: ShortShare = None,
    mean_popularity: MeanPopularity = None,
    long_bonus: LongBonus = None,
    dislikes: DislikesOf = None,
    dislike_cost: DislikeCost = None,
    dial: Dial = 0.0,
    similar: Annotated[bool, typer.Option("--similar", help="Also judge `milrec similar`; takes seconds.")] = False,
    cluster: Cluster = None,
    model_class: ModelClass = None,
) -> None:
    """Measure a model's lists: accuracy, novelty, and how they spread over the popularity tail.

    With --long-share 0.3, lists have 30 % of their first 20 places in the long tail, on average; what that costs is
    the difference between this evaluation and one without it.
    """
    from milrec.storage import check_place, open_manifest, write_json

    aims = aims_of(long_share, medium_share, short_share, mean_popularity, long_bonus)
    note_old_dial(dial)

    if json is not None:
        check_place(json)
    manifest = open_manifest(model, "model")
    open_manifest(split, "split")
    spared = dislikes_of(dislikes, dislike_cost, cluster, model_class)
    from milrec.cli.output import evaluation_table
    from milrec.cli.progress import progress_bar
    from milrec.data.splits import Split
    from milrec.recommender import Recommender

    # first: a model that cannot tell which items are similar is refused before its lists are judged
    alike = _judged_similar(Recommender.load(model, named_classes(model_class)), split, on) if similar else None
    if cluster is not None:
        found = _evaluated_on(cluster, model, split, (on.value, dial, aims, model_class or []))
    else:
        recommender, divided = Recommender.load(model, named_classes(model_class)), Split.load(split)
        with progress_bar("Evaluating", "users") as report:
            found = recommender.evaluate(divided, on.value, report, dial, spared, **aims)
    if alike is not None:
        found = found.with_more(alike.measures, alike.intervals)
    if json is not None:
        write_json(json, found.as_json())
    evaluation_table(f"{model} on {on.value}" + (f", dial {dial:g}" if dial else ""), found)
    _say_how_it_was_judged(found, manifest.facts.get("predicts") == REJECTIONS)


def _say_how_it_was_judged(found: Evaluation, of_rejections: bool) -> None:
    from milrec.cli.output import say

    if of_rejections:
        say("This model predicts rejections: hits are rejected items, and rejected shares are of adopted ones")
    if found.dislike_cost is not None:
        worth = f"P(adopted) - {found.dislike_cost:g} × P(rejected)"
        say(f"Lists are ranked by {worth}; auc_rejected and calibration_error are of the model's own order")
    if found.price is not None:
        said = str(found.price)
        say(f"{said[0].upper()}{said[1:]}")


def _judged_similar(recommender: Recommender, split: Path, on: PartName) -> SimilarEvaluation:
    from milrec.data.splits import Split

    return recommender.evaluate_similar(Split.load(split), on.value)


def _evaluated_on(address: str, model: Path, split: Path, asked: tuple[str, float, Aims, list[str]]) -> Evaluation:
    """On a cluster: a part of a split, with a dial or an aim, for a model that may need classes."""
    from milrec.cli.output import note
    from milrec.cli.progress import progress_bar
    from milrec.cluster.evaluation import JudgeOrder, evaluate
    from milrec.cluster.places import shared_place
    from milrec.cluster.session import joined
    from milrec.storage import open_manifest

    on, dial, aims, classes = asked
    with joined(address) as cluster:
        order = JudgeOrder(
            model=shared_place(str(model)),
            model_hash=open_manifest(model, "model").fingerprint(),
            split=shared_place(str(split)),
            split_hash=open_manifest(split, "split").fingerprint(),
            copied=cluster.copies,
            on=on,
            dial=dial,
            aims=dict(aims),
            classes=classes,
            folder=str(Path.cwd()),
        )
        with progress_bar("Evaluating", "users") as report:
            found = evaluate(cluster, order, report)
        note(str(cluster))
    return found
