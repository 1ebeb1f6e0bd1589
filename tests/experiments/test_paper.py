"""`milrec paper`: the paper's tables from its original archives, which small ones of the same formats stand in for."""

import json
import shutil
import signal
import tomllib
from pathlib import Path

import pytest

import made_up
from commands import milrec, succeeds
from milrec.cli.output import beside_paper_table
from milrec.errors import SettingsError
from milrec.experiments.paper import paper_recipe
from milrec.experiments.recipe import Instead
from milrec.report import paper
from milrec.results import Results
from milrec.training.presets import PAPER_MODELS
from pausing import held
from small_archives import lastfm, ml_20m, netflix

pytestmark = pytest.mark.xdist_group("experiment")  # one worker: its processes take long to start

ROOT = Path(__file__).parents[2]
QUICK = ("--set", "iterations=3", "--set", "n_factors=4", "--jobs", "1")
TWO = ("--only", "MIL lin-sig", "--only", "mf-ce")  # by its name in the tables, and by that of its settings


def recipe(table="metrics", instead=Instead(), last=False):  # noqa: B008
    return paper_recipe("ml-20m", table, Path("run"), instead, last)


@pytest.mark.parametrize("table", ["metrics", "held-out users"])
def test_a_recipe_has_exactly_the_models_of_the_papers_table(table):
    assert {entry.name for entry in recipe(table).models} == set(paper.figures(table, "ml-20m"))


def test_models_have_the_settings_of_the_paper_and_nothing_is_searched_unless_asked_for():
    for table in ("metrics", "held-out users"):
        for entry in recipe(table).models:
            assert not entry.search and recipe(table).seeds == [0]
            if entry.name not in ("WMF", "SLIM", "CDAE"):  # which the paper quotes from others
                assert entry.chosen() == PAPER_MODELS[entry.model].with_values({"patience": 0})  # to the end


def test_held_out_users_have_as_many_items_to_find_as_in_the_code_that_the_paper_used():
    assert recipe("held-out users").split.rounding == "down"


def test_a_search_goes_through_the_ranges_of_the_papers_protocol_and_begins_with_its_values():
    searched = {entry.name: entry for entry in recipe(instead=Instead(trials=5)).models}
    text = (ROOT / "experiments" / "paper-protocol.toml").read_text(encoding="utf-8")
    ranges = {model["name"]: model["search"] for model in tomllib.loads(text)["models"] if "search" in model}
    assert len(ranges) == 4
    for name, search in ranges.items():
        assert searched[name].search == search
    for entry in searched.values():
        assert entry.search and entry.own_places() is not None
        for places in entry.grid() or []:
            entry.chosen(entry.values(places))  # every value of the grid exists
    assert recipe(instead=Instead(trials=5)).search.trials == 5


def test_last_keeps_the_weights_of_the_last_step():
    for entry in recipe(last=True).models:
        training = entry.chosen().training
        assert (training.patience, training.slack) == (0, 1)
        assert training.iterations == PAPER_MODELS[entry.model].training.iterations
    with pytest.raises(SettingsError, match="`last` sets patience and slack; leave out patience, or `last`"):
        recipe(instead=Instead(values={"patience": 2}), last=True)
    assert "of the last step" in recipe(last=True).description and "best on validation" in recipe().description


def test_last_leaves_models_without_a_set_length_alone():
    """CDAE has milrec's settings: without early stopping it would be fitted for 200 epochs."""
    patience = {entry.name: entry.chosen().training for entry in recipe("held-out users", last=True).models}
    assert patience["CDAE"].patience > 0 and patience["Multi-VAE^PR"].patience == 0


@pytest.mark.parametrize(
    ("dataset", "archive", "table", "models"),
    [
        ("ml-20m", ml_20m, "metrics", ["MF-square", "CE_Pair sig-sig", "MULTI tanh-lin", "MIL lin-sig"]),
        ("ml-20m", ml_20m, "held-out-users", ["Multi-VAE^PR", "Multi-DAE", "SLIM", "CDAE", "MIL sig-sig"]),
        ("netflix", netflix, "metrics", ["CE_Point lin-sig", "CE_Pair lin-sig", "MIL lin-sig"]),
        ("lastfm-360k", lastfm, "metrics", ["MF-mil", "CE_Point sig-sig"]),
    ],
)
def test_one_command_makes_the_papers_table_of_an_original_archive(tmp_path, dataset, archive, table, models):
    only = [part for name in models for part in ("--only", name)]
    command = ["paper", dataset, "--source", archive(tmp_path), "--out", "run", "--table", table, *only, *QUICK]
    done = succeeds(*command, cwd=tmp_path)
    results = Results.read(tmp_path / "run")
    assert [model.name for model in results.models] == models and results.failures == ()
    assert results.paper.dataset == dataset and results.split.protocol == (
        "users" if "users" in table else "interactions"
    )
    data = json.loads((tmp_path / "run/data/milrec.json").read_text())["facts"]
    assert data["filters"] == (
        {"min_per_item": 50, "min_per_user": 20}
        if dataset == "lastfm-360k"
        else {"adopt_min": 4, "min_per_item": 1, "min_per_user": 5}
    )
    assert f"{len(models)} models: {len(models)} fits, no search." in done.stderr
    assert done.stderr.startswith("note: These are not the paper's data: ") and done.stderr.count("note:") == 1
    for model, measures in paper.figures("held-out users" if "users" in table else table, dataset).items():
        shown = [line for line in done.stdout.splitlines() if line.startswith(f"│ {model} ")]
        assert len(shown) >= (len(measures) if model in models else 0)
    assert "│ paper │ difference │" in done.stdout.replace("┃", "│")
    assert done.stdout.endswith("Results: run/results.json\nReport: run/report.html\n")
    assert "Beside the paper" in (tmp_path / "run/report.html").read_text()


def test_last_and_trials_reach_the_fits(tmp_path):
    source = ml_20m(tmp_path)
    quick = ("--set", "iterations=3", "--set", "validate_every=1", "--jobs", "1")
    command = ("paper", "ml-20m", "--source", source, "--out", "run", "--only", "multi-tanh-lin", *quick)
    done = succeeds(*command, "--last", "--trials", 2, "--seed", 3, "--seed", 4, cwd=tmp_path)
    assert "1 model: at most 2 trials and 2 fits." in done.stderr and "Time: at most " in done.stderr
    results = Results.read(tmp_path / "run")
    assert [(model.seed, model.history.kept_iteration) for model in results.models] == [(3, 3), (4, 3)]
    assert all((model.settings.training or {})["patience"] == 0 for model in results.models)
    assert [len(search.trials) for search in results.searches] == [2]


def test_differences_are_shown_if_the_data_are_the_papers(capsys):
    figures = {"recall_at_1": 0.301, "recall_at_20": 0.36, "ndcg_at_100": 0.369}
    told = {"users": 136_700, "items": 20_300, "paper": {"table": "metrics", "dataset": "ml-20m"}}
    beside_paper_table(made_up.run([made_up.model("MIL lin-sig", loss="mil", **figures)], **told))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["MIL lin-sig", "Recall@1", "0.301", "0.299", "+0.002 ✓"] in rows
    assert ["MIL lin-sig", "Recall@20", "0.360", "0.375", "-0.015"] in rows
    assert ["MIL lin-sig", "NDCG@100", "0.369", "0.369", "+0.000 ✓"] in rows
    assert ["items", "short → medium", "177", "177", "+0 ✓"] in rows


def test_an_estimate_prepares_the_data_and_fits_nothing_and_the_run_goes_on_from_there(tmp_path):
    command = ("paper", "ml-20m", "--source", ml_20m(tmp_path), "--out", "run", *QUICK)
    done = succeeds(*command, "--estimate", cwd=tmp_path)
    assert "10 models: 10 fits, no search.\n" in done.stdout
    assert "\nTime: about " in done.stdout and " one job at a time, judging by a few steps of each model" in done.stdout
    assert "stop early" not in done.stdout
    assert "without --estimate begins, or resumes, the run" in done.stdout
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"milrec.json", "data", "split"}
    written = (tmp_path / "run/data/milrec.json").stat().st_mtime_ns
    done = succeeds(*command, "--only", "MIL lin-sig", "--estimate", cwd=tmp_path)
    assert "1 model: 1 fit, no search.\n" in done.stdout, "before the first fit, the models may still change"
    assert "Reading" not in done.stdout and (tmp_path / "run/data/milrec.json").stat().st_mtime_ns == written
    succeeds(*command, "--only", "MIL lin-sig", cwd=tmp_path)
    done = succeeds(*command, "--only", "MIL lin-sig", "--estimate", cwd=tmp_path)
    assert "Already finished: 1 fit.\nNothing is left to fit.\n" in done.stdout
    assert "holds a run of another recipe ('models' differs)" in milrec(*command, cwd=tmp_path).stderr


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    source = ml_20m(tmp_path)
    command = ("paper", "ml-20m", "--source", source, "--out", tmp_path / "run", *TWO, *QUICK)
    with held("new data folder", *command) as process:
        process.killed()
    assert not (tmp_path / "run/data").exists()
    with held("fit step 2", *command) as process:
        process.pause.arrive()  # let go of the first model: this is the second one
        process.process.send_signal(signal.SIGINT)
        process.pause.close()
        ended = process.ended()
    assert ended.code == 130 and "Interrupted; the same command resumes the run" in ended.error
    written = (tmp_path / "run/data/milrec.json").stat().st_mtime_ns
    done = succeeds(*command)
    assert "2 models: 2 fits, no search.\n" in done.stderr and "Already finished: 1 fit.\n" in done.stderr
    assert "\nTime left: about " in done.stderr
    assert (tmp_path / "run/data/milrec.json").stat().st_mtime_ns == written and "Reading" not in done.stdout
    assert [model.name for model in Results.read(tmp_path / "run").models] == ["MF-CE", "MIL lin-sig"]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "milrec.json", "data", "split", "jobs", "results.json", "report.html",
    }  # fmt: skip


@pytest.fixture
def sources(tmp_path):
    ml_20m(tmp_path)
    netflix(tmp_path).rename(tmp_path / "netflix.tar.gz")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/thesis.txt").write_text("precious")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["ml-2m", "--source", "ml-20m.zip"],
            "unknown data set 'ml-2m' (did you mean 'ml-20m'?); known data sets: lastfm-360k, ml-20m, netflix",
        ),
        (["ml-20m", "--source", "nowhere.zip"], "there is no file or folder 'nowhere.zip'"),
        (
            ["ml-20m", "--source", "netflix.tar.gz"],
            "'netflix.tar.gz' is not ml-20m: its files are in the format of netflix; give the original archive, or",
        ),
        (
            ["netflix", "--source", "ml-20m.zip"],
            "'ml-20m.zip' is not netflix: its files are in the format of movielens",
        ),
        (["netflix", "--source", "folder"], "'folder' is not netflix: none of its files is known"),
        (["lastfm-360k", "--source", "folder/thesis.txt"], "is damaged or not an archive"),
        (
            ["ml-20m", "--source", "ml-20m.zip", "--table", "6"],
            "unknown table '6'; known tables: held-out-users, metrics",
        ),
        (
            ["netflix", "--source", "netflix.tar.gz", "--table", "held-out-users"],
            "the paper has no table 'held-out-users' for netflix, only for ml-20m",
        ),
        (
            ["ml-20m", "--source", "ml-20m.zip", "--only", "MILL"],
            "the recipe has no model 'MILL'; its models are MF-square",
        ),
        (["ml-20m", "--source", "ml-20m.zip", "--set", "epoch=3"], "unknown setting 'epoch'"),
        (
            ["ml-20m", "--source", "ml-20m.zip", "--last", "--set", "slack=0"],
            "--last sets patience and slack; leave out",
        ),
        (["ml-20m", "--source", "ml-20m.zip", "--seed", "1", "--seed", "1"], "a seed is given twice"),
        (
            ["ml-20m", "--source", "ml-20m.zip", "--trials", "2", "--set", "weight_decay=1"],
            "'weight_decay' is searched by the recipe, so it cannot be set as well",
        ),
    ],
)
def test_a_mistake_is_answered_with_one_sentence_and_leaves_nothing(sources, arguments, sentence):
    before = sorted(path.name for path in sources.iterdir())
    done = milrec("paper", *arguments, "--out", "run", cwd=sources)
    assert done.returncode == 1 and sentence in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert sorted(path.name for path in sources.iterdir()) == before


def test_a_folder_that_holds_something_else_is_left_alone(sources):
    done = milrec("paper", "ml-20m", "--source", "ml-20m.zip", "--out", "folder", cwd=sources)
    assert done.returncode == 1 and "'folder' is not empty and holds no milrec run" in done.stderr
    assert [path.name for path in (sources / "folder").iterdir()] == ["thesis.txt"]


def test_data_of_another_source_are_not_taken_for_those_of_this_one(tmp_path):
    source = ml_20m(tmp_path)
    command = ("paper", "ml-20m", "--source", source, "--out", tmp_path / "run", "--only", "MIL lin-sig", *QUICK)
    succeeds(*command, "--estimate")
    moved = shutil.move(source, tmp_path / "elsewhere.zip")
    again = ("paper", "ml-20m", "--source", moved, *command[4:], "--estimate")
    succeeds(*again)
    (tmp_path / "notes.txt").write_text("of no concern")
    succeeds(*again)
    with Path(moved).open("ab") as archive:
        archive.write(b"more")
    done = milrec(*again)
    assert done.returncode == 1 and "run/data' was not prepared from '" in done.stderr


def test_the_folder_unpacked_from_an_archive_and_its_main_file_will_do(tmp_path):
    shutil.unpack_archive(ml_20m(tmp_path), tmp_path)
    for number, source in enumerate(("ml-20m", "ml-20m/ratings.csv")):
        command = ("--out", f"run-{number}", "--only", "MIL lin-sig", *QUICK, "--estimate")
        done = succeeds("paper", "ml-20m", "--source", source, *command, cwd=tmp_path)
        assert "users    130\n" in done.stdout
