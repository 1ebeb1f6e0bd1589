"""The command line as a person meets it: right and wrong input."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from safetensors import safe_open

from commands import in_a_process, milrec, succeeds
from milrec import Split, load
from milrec.data.downloads import NAMES
from milrec.data.reading.formats import FORMATS, LIST_ENDINGS
from milrec.disk.locks import locked
from milrec.losses import LOSSES
from milrec.models.settings import MODELS
from pausing import held

pytestmark = pytest.mark.xdist_group("cli")  # one worker: what it sets up takes long


def refuses(*arguments, cwd=None, code=1):
    """One clear sentence on standard error, no traceback, a non-zero code."""
    done = milrec(*arguments, cwd=cwd)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


COMMANDS = (
    "demo", "download", "simulate", "prepare", "split", "fit", "evaluate",
    "recommend", "similar", "items", "serve", "experiment", "paper", "report", "models", "show",
)  # fmt: skip
QUICK = ("--set", "n_factors=8", "--set", "epochs=3")


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with a data set, a split, a model and lists, made by the commands themselves."""
    folder = tmp_path_factory.mktemp("work")
    succeeds("simulate", "--out", "data", "--users", 200, "--items", 120, "--seed", 3, cwd=folder)
    succeeds("split", "data", "--out", "split", "--seed", 0, cwd=folder)
    succeeds("fit", "split", "--out", "model", *QUICK, cwd=folder)
    succeeds("recommend", "model", "--all", "-n", 7, "--out", "lists.parquet", cwd=folder)
    return folder


def test_help_and_mistakes_do_not_wait_for_torch(work):
    code = """
import json, sys
from milrec.cli.app import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["milrec", *arguments]
    try:
        main()
    except SystemExit:
        pass
    if "torch" in sys.modules:
        sys.exit(f"torch is imported by {arguments}")
"""
    commands = [
        ["--help"],
        ["fit", "--help"],
        ["models"],
        ["fit", "split", "--out", "m", "--loss", "mill"],
        ["fit", "nowhere", "--out", "m"],
        ["evaluate", "nowhere", "split"],
        ["recommend", "nowhere", "--user", "1"],
        ["show", "model"],
        ["items", "model", "--search", "the golden"],
        ["recommend", "model", "--user", "nobody"],
        ["recommend", "model", "--adopted", "nothing"],
        ["similar", "model", "nothing"],
        ["paper", "--help"],
        ["paper", "ml-2m", "--source", "data", "--out", "run"],
        ["paper", "ml-20m", "--source", "nowhere.zip", "--out", "run"],
        ["paper", "ml-20m", "--source", "data", "--out", "run"],
        ["paper", "ml-20m", "--source", "data", "--out", "run", "--set", "epoch=3"],
        ["experiment", "wrong.toml", "--out", "run"],
    ]
    (work / "wrong.toml").write_text('title = "wrong"\n[[models]]\nname = "MIL"\nloss = "mill"\n')
    command = [sys.executable, "-c", code, json.dumps(commands)]
    done = subprocess.run(command, cwd=work, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


def test_a_command_checks_the_files_that_it_reads_and_show_checks_all(work, tmp_path):
    shutil.copytree(work / "model", tmp_path / "model")
    weights = tmp_path / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert (
        succeeds("items", "model", "-n", 3, cwd=tmp_path).stdout == succeeds("items", "model", "-n", 3, cwd=work).stdout
    )
    assert "unknown user 'nobody'" in refuses("recommend", "model", "--user", "nobody", cwd=tmp_path)
    for command in (["show", "model"], ["recommend", "model", "--user", "u001"], ["similar", "model", "i001"]):
        assert "file 'weights.safetensors' has changed" in refuses(*command, cwd=tmp_path)
    for name in ("items.arrow", "adopted.arrow"):
        shutil.copy(work / "model" / name, tmp_path / "kept")
        (tmp_path / "model" / name).write_bytes((tmp_path / "kept").read_bytes()[:-1] + b"!")
        assert f"file '{name}' has changed" in refuses("items", "model", cwd=tmp_path)
        shutil.copy(tmp_path / "kept", tmp_path / "model" / name)
    (tmp_path / "model" / "users.arrow").unlink()
    assert "file 'users.arrow' is missing" in refuses("recommend", "model", "--user", "u001", cwd=tmp_path)


def test_a_file_where_a_folder_is_needed_and_object_storage_are_named_for_what_they_are(work):
    (work / "my plays.csv").write_text("user,item\na,b\n")
    said = refuses("split", "my plays.csv", "--out", "s", cwd=work)
    assert said == "milrec: 'my plays.csv' is a file, not a data folder; run `milrec prepare` on it first\n"
    assert "'my plays.csv' is a file; a model folder is needed" in refuses("items", "my plays.csv", cwd=work)
    for command in (["evaluate", "s3://bucket/mil", "split"], ["fit", "s3://bucket/mil", "--out", "m"]):
        assert "'s3://bucket/mil' is in object storage, which only a cluster reads" in refuses(*command, cwd=work)


def test_too_little_data_is_said_by_prepare_and_by_split(work):
    rows = "".join(f"u{user},i{user % 7}\n" for user in range(547))
    (work / "tiny.csv").write_text(f"user,item\n{rows}")
    said = succeeds("prepare", "tiny.csv", "--out", "tiny", cwd=work).stderr
    assert "note: 'tiny.csv' is small: after a split, at most 54 of 547 users can be judged" in said
    said = succeeds("split", "tiny", "--out", "tiny-split", cwd=work).stderr
    assert re.match(r"warning: only \d\d of 547 users have a held-out test item, so measures may be off by", said)
    assert said.endswith("hold out more of it (--held-out)\n")
    assert succeeds("split", "data", "--out", "again", cwd=work).stderr == ""


def test_every_command_has_a_help_that_says_what_it_does():
    listing = succeeds("--help").stdout
    for command in COMMANDS:
        assert command in listing
        assert len(succeeds(command, "--help").stdout) > 200


def test_evaluate_writes_the_promised_json(work):
    shown = succeeds("evaluate", "model", "split", "--json", "measures.json", cwd=work).stdout
    found = json.loads((work / "measures.json").read_text())
    for key in ("recall@1", "recall@20", "recall@50", "ndcg@20", "ndcg@100", "novelty_ndcg@100", "n_users"):
        assert isinstance(found[key], (int, float))
    assert sum(found["top_200_share"].values()) == pytest.approx(100)
    assert set(found["top_200_share"]) == {"short", "medium", "long"}
    assert len(found["interval_cuts"]) == 2 and sum(found["preference_distribution"]) == pytest.approx(100)
    assert "ndcg@100" in shown and "Top 200 by tail" in shown


def test_evaluate_judges_similar_items_on_request(work):
    plain = succeeds("evaluate", "model", "split", "--json", "plain.json", cwd=work).stdout
    shown = succeeds("evaluate", "model", "split", "--similar", "--json", "similar.json", cwd=work).stdout
    assert "similar_hit_rate@20" in shown and "similar" not in plain
    without, found = (json.loads((work / name).read_text()) for name in ("plain.json", "similar.json"))
    expected = load(work / "model").evaluate_similar(Split.load(work / "split"))
    for key, value in expected.measures.items():
        assert key not in without and found[key] == pytest.approx(value)
        assert found["intervals"][key] == pytest.approx(expected.intervals[key])
    assert found["ndcg@20"] == without["ndcg@20"]


def test_evaluate_says_that_a_popularity_model_has_no_similar_items(work):
    succeeds("fit", "split", "--model", "popularity", "--out", "popular", cwd=work)
    said = refuses("evaluate", "popular", "split", "--similar", "--json", "popular.json", cwd=work)
    assert "a popularity model has no item factors to compare" in said
    assert not (work / "popular.json").exists()


def test_evaluate_on_validation_gives_the_measure_of_the_weights_that_were_kept(work):
    succeeds("evaluate", "model", "split", "--on", "validation", "--json", "validation.json", cwd=work)
    facts = json.loads((work / "model" / "milrec.json").read_text())["facts"]
    found = json.loads((work / "validation.json").read_text())
    history = facts["history"]
    kept = history["measures"][history["iterations"].index(history["kept_iteration"])]
    assert found["ndcg@100"] == pytest.approx(kept, abs=1e-12)


def test_lists_in_every_format_hold_the_same(work):
    for suffix in ("parquet", "csv", "tsv", "jsonl"):
        succeeds("recommend", "model", "--all", "-n", 7, "--out", f"lists.{suffix}", cwd=work)
    rows = pq.read_table(work / "lists.parquet").to_pylist()
    lines = [json.loads(line) for line in (work / "lists.jsonl").read_text().splitlines()]
    assert [(row["user"], row["position"], row["item"]) for row in rows] == [
        (line["user"], line["position"], line["item"]) for line in lines
    ]
    assert len((work / "lists.csv").read_text().splitlines()) == len(rows) + 1
    with (work / "lists.tsv").open() as file:
        texts = list(csv.reader(file, delimiter="\t"))
    assert texts[0][:3] == ["user", "position", "item"]
    assert [(user, int(rank), item) for user, rank, item, *_ in texts[1:]] == [
        (row["user"], row["position"], row["item"]) for row in rows
    ]


def test_several_users_may_follow_one_option(work):
    users = [line["user"] for line in pq.read_table(work / "lists.parquet").to_pylist()][:15:7]
    out = succeeds("recommend", "model", "--user", *users, "-n", 2, cwd=work).stdout.splitlines()
    assert [line.split("\t")[0] for line in out[1:]] == [user for user in users for _ in range(2)]


def test_five_allowed_give_five(work):
    items = [row["item"] for row in pq.read_table(work / "lists.parquet").to_pylist()]
    allowed = sorted(set(items))[:5]
    (work / "allow.txt").write_text("\n".join([*allowed, "no such item"]) + "\n")
    done = succeeds("recommend", "model", "--adopted", items[-1], "--allow", "allow.txt", "-n", 20, cwd=work)
    assert len(done.stdout.splitlines()) == 1 + len(set(allowed) - {items[-1]})
    assert "1 of 6 ids in the allow file are not in the catalogue" in done.stderr


def test_excluded_items_are_not_listed(work):
    first = succeeds("recommend", "model", "--adopted", "i001", "-n", 1, cwd=work).stdout.splitlines()[1].split("\t")[1]
    (work / "exclude.txt").write_text(first + "\n")
    again = succeeds("recommend", "model", "--adopted", "i001", "--exclude", "exclude.txt", cwd=work).stdout
    assert first not in [line.split("\t")[1] for line in again.splitlines()]


def test_rules_and_reasons_appear_on_the_screen_and_in_a_file(work):
    """The lists are those of the library; a rule that cannot be met is a note here and a column there."""
    asked = ["recommend", "model", "--adopted", "i001,i002", "-n", 5, "--rule", "long >= 60%", "--rule", "short >= 60%"]
    done = succeeds(*asked, "--reasons", 2, cwd=work)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines[0] == ["position", "item", "title", "score", "probability", "popularity", "interval", "reasons"]
    assert [line[6] for line in lines[1:]].count("long") == 3
    sentence = "at least 60 % of the list from the short tail: 2 of 3, the rules before it leave no room"
    assert done.stderr == f"note: {sentence}\n"
    table = load(work / "model").recommend_new(["i001", "i002"], n=5, rules=["long >= 60%", "short >= 60%"], reasons=2)
    assert [line[1] for line in lines[1:]] == table["item"].to_pylist()
    assert [line[7] for line in lines[1:]] == table["reasons"].to_pylist()
    assert set(table["unmet"].to_pylist()) == {sentence}
    rules = ["--rule", "long >= 3 in 4", "--rule", "short >= 2 in 4"]
    done = succeeds("recommend", "model", "--all", "-n", 6, *rules, "--out", "ruled.parquet", cwd=work)
    rows = pq.read_table(work / "ruled.parquet").to_pylist()
    assert all(row["unmet"].endswith("1 of 2, the rules before it leave no room") for row in rows)
    assert sum(row["interval"] == "long" for row in rows if row["position"] <= 4) == 3 * len(
        {row["user"] for row in rows}
    )
    assert "lists fall short of what you asked for; see the column unmet" in done.stderr


def test_an_empty_list_says_which_rule_it_does_not_meet(work):
    (work / "own.txt").write_text("i001\n")
    asked = ["recommend", "model", "--adopted", "i001", "--allow", "own.txt", "--rule", "long >= 1"]
    done = succeeds(*asked, cwd=work)
    assert done.stderr == "note: at least 1 of the list from the long tail: 0 of 1, the list is only 0 long\n"


def test_a_known_user_can_have_new_items(work):
    done = succeeds(
        "recommend", "model", "--user", "u001", "--adopted", "i001,i002", "--rejected", "i003", "-n", 5, cwd=work
    )
    table = load(work / "model").recommend_new(["i001", "i002"], ["i003"], 5, user="u001")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines[0][:3] == ["user", "position", "item"] and [line[2] for line in lines[1:]] == table["item"].to_pylist()
    done = succeeds("recommend", "model", "--user", "u001", "--rejected", table["item"][0].as_py(), "-n", 5, cwd=work)
    assert table["item"][0].as_py() not in [line.split("\t")[2] for line in done.stdout.splitlines()]


def test_unknown_items_are_skipped_and_named_on_request(work):
    asked = ["recommend", "model", "--adopted", "i001,nothing,i002", "--rejected", "nowhere", "-n", 5]
    done = succeeds(*asked, "--skip-unknown", cwd=work)
    assert done.stderr == "note: unknown items were skipped: 'nothing', 'nowhere'\n"
    assert done.stdout == succeeds("recommend", "model", "--adopted", "i001,i002", "-n", 5, cwd=work).stdout


def test_items_are_found_by_title(work):
    found = load(work / "model").find_items("the", 3)
    lines = succeeds("items", "model", "--search", "the", "-n", 3, cwd=work).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines[1:]] == found["item"].to_pylist()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["prepare", "nowhere.csv", "--out", "d"], "there is no file or folder 'nowhere.csv'"),
        (["split", "nowhere", "--out", "s"], "there is no data folder 'nowhere'"),
        (["split", "model", "--out", "s"], "'model' is a model folder; a data folder is needed"),
        (["split", "data", "--out", "s", "--test", "nowhere"], "there is no data folder 'nowhere'"),
        (["split", "data", "--out", "s", "--like-test"], "--like-test needs a test part; give it with --test"),
        (["split", "data", "--out", "s", "--test", "data"], "no adopted pair is left in the test part"),
        (["split", "data", "--out", "s", "--test", "data", "--protocol", "users"], "leave out --test and --held-out"),
        (
            ["split", "data", "--out", "s", "--protocol", "users", "--held-out", "0.2"],
            "leave out --test and --held-out",
        ),
        (
            ["split", "data", "--out", "s", "--held-out", "0.7"],
            "--held-out must be between 0 and 0.5 (it is used twice, for validation and test)",
        ),
        (["fit", "data", "--out", "m"], "'data' is a data folder; a split folder is needed (made by milrec split)"),
        (["prepare", "data", "--out", "d"], "'data' is a milrec data folder, so there is nothing to prepare"),
        (["report", "data", "--out", "r.html"], "'data' has no results.json; it is a data folder, not a run"),
        (["fit", "split", "--out", "model"], "already holds a model folder"),
        (["fit", "split", "--out", "data"], "holds a milrec data folder; choose another place"),
        (
            ["fit", "split", "--out", "m", "--loss", "mill"],
            "known losses: mil, multinomial, pairwise, pointwise",
        ),
        (["fit", "split", "--out", "m", "--model", "gpt"], "unknown model 'gpt'; known models:"),
        (["fit", "split", "--out", "m", "--model", "ease", "--loss", "mil"], "model 'ease' has no loss"),
        (["fit", "split", "--out", "m", "--model", "slim", "--set", "l3=1"], "known settings: l1, l2"),
        (["fit", "split", "--out", "m", "--model", "wmf", "--set", "confidence=0"], "setting 'confidence' is '0'"),
        (["recommend", "model", "--user", "u001", "--dial", "nan"], "the dial must be a finite number"),
        (["recommend", "model", "--all", "--out", "lists.csv", "--dial", "inf"], "the dial must be a finite number"),
        (["evaluate", "model", "split", "--dial", "inf"], "the dial must be a finite number"),
        (["fit", "split", "--out", "m", "--set", "epoch=3"], "unknown setting 'epoch'"),
        (["fit", "split", "--out", "m", "--set", "epochs"], "write KEY=VALUE"),
        (["fit", "split", "--out", "m", "--set", "epochs=many"], "setting 'epochs' is 'many'"),
        (["fit", "split", "--out", "m", "--set", "measure=mrr"], "unknown measure 'mrr'; known measures:"),
        (["fit", "split", "--out", "m", "--set", "device=cuda"], "not available"),
        (["evaluate", "model", "data"], "'data' is a data folder; a split folder is needed"),
        (["recommend", "model"], "say who the list is for: --user ID"),
        (["recommend", "model", "--user", "nobody"], "unknown user 'nobody'"),
        (["recommend", "model", "--adopted", "nothing"], "unknown item 'nothing'"),
        (
            ["recommend", "model", "--adopted", "nothing", "--skip-unknown"],
            "none of the adopted items is known",
        ),
        (["recommend", "model", "--user", "u001", "--skip-unknown"], "--skip-unknown needs --adopted"),
        (["recommend", "model", "--user", "u001", "u002", "--adopted", "i001"], "one --user with them, not 2"),
        (["recommend", "model", "--user", "u001", "--all", "--out", "l.csv"], "or both, or --all alone"),
        (["recommend", "model", "--all"], "--all needs --out"),
        (["recommend", "model", "--all", "--out", "lists.xlsx"], "known endings: .parquet, .csv, .tsv, .jsonl"),
        (["recommend", "model", "--all", "--out", "nowhere/lists.csv"], "folder 'nowhere' does not exist"),
        (["recommend", "model", "--user", "u001", "--allow", "nowhere.txt"], "there is no file 'nowhere.txt'"),
        (["recommend", "model", "--user", "u001", "--rule", "long"], "'long' is not a rule; write it as 'long >= 30%'"),
        (["items", "nowhere", "--search", "x"], "there is no model folder 'nowhere'"),
        (["similar", "model", "nothing"], "unknown item 'nothing'"),
        (["experiment", "nowhere.toml", "--out", "run"], "there is no file 'nowhere.toml'"),
        (["paper", "ml-2m", "--source", "data", "--out", "run"], "known data sets: lastfm-360k, ml-20m, netflix"),
        (["paper", "ml-20m", "--source", "nowhere", "--out", "run"], "there is no file or folder 'nowhere'"),
        (["paper", "ml-20m", "--source", "data", "--out", "run"], "'data' is not ml-20m: none of its files is known"),
        (["report", "nowhere"], "there is no run 'nowhere'"),
        (["report", "data"], "has no results.json"),
        (["show", "nowhere"], "there is no folder 'nowhere'"),
        (["download", "ml-3m"], "known data sets: lastfm-360k, ml-100k"),
        (["download", "netflix"], "Kaggle"),
        (["simulate", "--out", "d", "--users", "1"], "at least 2 users"),
        (["simulate", "--out", "d", "--users", "9" * 30], "at most a billion users and items"),
        (["simulate", "--out", "d", "--items", "9" * 30], "at most a billion users and items"),
        (["fit", "split", "--out", "/"], "'/' cannot be a model folder"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(work, arguments, sentence):
    before = sorted(path.name for path in work.iterdir())
    assert sentence in refuses(*arguments, cwd=work)
    assert sorted(path.name for path in work.iterdir()) == before


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl"])
@pytest.mark.parametrize(("who", "n_rows"), [(("--user", "u001", "--user", "u002"), 6), (("--adopted", "i001"), 3)])
def test_lists_of_some_users_can_be_written_to_a_file(work, tmp_path, ending, who, n_rows):
    out = tmp_path / f"some.{ending}"
    done = succeeds("recommend", "model", *who, "-n", 3, "--out", out, cwd=work)
    assert f"{n_rows} rows → {out}" in done.stdout.replace("\n", "")
    lines = pq.read_table(out).num_rows if ending == "parquet" else len(out.read_text().splitlines())
    assert lines == n_rows + (ending in ("csv", "tsv"))


def test_a_class_and_another_model_are_not_named_together(work):
    (work / "mine.py").write_text((Path(__file__).parents[1] / "own_encoders.py").read_text())
    said = refuses("fit", "split", "--out", "m", "--model-class", "mine:Gated", "--model", "ease", cwd=work)
    assert "--model ease is one of milrec's own models; give only one of --model and --model-class" in said


def test_a_model_is_not_judged_on_another_split(work):
    succeeds("split", "data", "--out", "other", "--seed", 9, cwd=work)
    assert "fitted on another split" in refuses("evaluate", "model", "other", cwd=work)


@pytest.mark.parametrize("file", ["weights.safetensors", "items.arrow", "milrec.json", "removed.arrow"])
def test_a_damaged_model_is_refused_whatever_the_file(work, tmp_path, file):
    shutil.copytree(work / "model", tmp_path / "model")
    damaged = tmp_path / "model" / file
    content = bytearray(damaged.read_bytes())
    content[-100] ^= 1  # in a manifest: one of the hashes
    damaged.write_bytes(bytes(content))
    refuses("recommend", tmp_path / "model", "--user", "u001")
    refuses("show", tmp_path / "model")
    damaged.unlink()
    refuses("recommend", tmp_path / "model", "--user", "u001")


def test_ids_come_back_exactly_as_they_went_in(tmp_path):
    users = ["007", "7", " seven ", "sept·é", "名前", 'with "quotes"', "with,comma", "-1", "1e3", "NA"]
    items = [f"0{number}" for number in range(12)] + ["ítem ñ", "a,b"]
    rows = ["user,item"]
    for place, user in enumerate(users):
        for item in (items[(place + step) % len(items)] for step in range(6)):
            rows.append(",".join('"' + text.replace('"', '""') + '"' for text in (user, item)))
    (tmp_path / "odd.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    succeeds("prepare", "odd.csv", "--out", "data", cwd=tmp_path)
    succeeds("split", "data", "--out", "split", cwd=tmp_path)
    succeeds("fit", "split", "--out", "model", "--model", "popularity", cwd=tmp_path)
    succeeds("recommend", "model", "--all", "--out", "lists.parquet", cwd=tmp_path)
    lists = pq.read_table(tmp_path / "lists.parquet")
    assert set(lists["user"].to_pylist()) == set(users)
    assert set(lists["item"].to_pylist()) <= set(items)
    listed = succeeds("recommend", "model", "--user", " seven ", "-n", 1, cwd=tmp_path).stdout.splitlines()[1]
    assert listed.split("\t")[0] == " seven "


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        ("", [], "is empty"),
        ("user,item\n", [], "has no rows"),
        ("user,item\na,b\n", ["--value", "plays"], "has no column 'plays'; its columns are user, item"),
        ("user,item,plays\na,b,many\n", ["--value", "plays"], "text 'many' in line 2"),
        ("user,item,plays\na,b,1\na,c,\n", ["--value", "plays"], "no number in line 3"),
        ("user,item,plays\na,b,NaN\n", ["--value", "plays"], "no number in line 2"),
        ("user,item,plays\na,b,-3\n", ["--value", "plays"], "the count in line 2 of 'table.csv' is -3"),
        ("user,item\n,b\n", [], "line 2 has an empty id"),
        ("who,what\na,b\n", [], "name one of who, what with --user"),
        ("user,item,stars\na,b,2\n", ["--value", "stars", "--adopt-min", "4"], "no adopted items left"),
        ("user,item,stars\na,b,2\n", ["--adopt-min", "4"], "need a column of values"),
        ("user,item,test\na,b,1\n", ["--where", "test=0"], "no row of 'table.csv' has test=0; the column holds 1"),
        ("user,item,test\na,b,1\n", ["--where", "tset=0"], "has no column 'tset'; its columns are user, item, test"),
        ("user,item,test\na,b,1\n", ["--where", "test"], "'test' is not a condition; write COLUMN=VALUE"),
        (
            "user,item,test\na,b,1\n",
            ["--where", "test=1", "--where", "test=2"],
            "column 'test' is given two values",
        ),
    ],
)
def test_bad_tables_are_answered_with_one_sentence(tmp_path, content, arguments, sentence):
    (tmp_path / "table.csv").write_text(content)
    assert sentence in refuses("prepare", "table.csv", "--out", "data", *arguments, cwd=tmp_path)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("content", ["user,item\na,x\n", "user,item\na,x\na,y\n", "user,item\na,x\nb,x\nc,x\n"])
def test_the_smallest_data_gives_a_result_or_a_sentence(tmp_path, content):
    (tmp_path / "table.csv").write_text(content)
    succeeds("prepare", "table.csv", "--out", "data", cwd=tmp_path)
    for arguments in (["split", "data", "--out", "split"], ["fit", "split", "--out", "model", *QUICK]):
        done = milrec(*arguments, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 1)
    if (tmp_path / "model").exists():
        done = milrec("evaluate", "model", "split", cwd=tmp_path)
        assert "Traceback" not in done.stderr
        succeeds("recommend", "model", "--user", "a", cwd=tmp_path)


def test_an_existing_folder_is_replaced_only_when_forced(tmp_path):
    succeeds("simulate", "--out", "data", "--users", 60, "--items", 40, cwd=tmp_path)
    before = (tmp_path / "data" / "milrec.json").read_text()
    assert "--force" in refuses("simulate", "--out", "data", "--users", 70, "--items", 40, cwd=tmp_path)
    assert (tmp_path / "data" / "milrec.json").read_text() == before
    succeeds("simulate", "--out", "data", "--users", 70, "--items", 40, "--force", cwd=tmp_path)
    assert (tmp_path / "data" / "milrec.json").read_text() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


LONGER = ("--set", "n_factors=8", "--set", "epochs=40", "--set", "patience=0", "--set", "checkpoint_seconds=0")


def weights(model: Path) -> dict[str, bytes]:
    with safe_open(model / "weights.safetensors", framework="np") as file:
        return {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_fit_resumes_to_exactly_the_same_weights(work, how):
    out, whole = f"broken-{how.name}", f"whole-{how.name}"
    with held("fit step 13", "fit", "split", "--out", out, *LONGER, cwd=work) as process:
        process.process.send_signal(how)
        process.pause.let_go()
        assert process.ended().code == (-signal.SIGKILL if how is signal.SIGKILL else 130)
    assert not (work / out).exists()
    assert "--resume" in refuses("fit", "split", "--out", out, *LONGER, cwd=work)
    other = ("--set", "n_factors=9", *LONGER[2:])
    assert "other data, settings or seed" in refuses("fit", "split", "--out", out, *other, "--resume", cwd=work)
    succeeds("fit", "split", "--out", out, *LONGER, "--resume", cwd=work)
    succeeds("fit", "split", "--out", whole, *LONGER, cwd=work)
    assert weights(work / out) == weights(work / whole)
    assert not (work / f"{out}.partial").exists()


def test_resuming_what_is_finished_changes_nothing(work):
    before = (work / "model" / "milrec.json").read_text()
    assert "already fitted" in succeeds("fit", "split", "--out", "model", *QUICK, "--resume", cwd=work).stdout
    assert (work / "model" / "milrec.json").read_text() == before


def test_an_interrupted_fit_has_kept_its_work_however_rarely_it_writes(work):
    rarely = ("--set", "epochs=4000", "--set", "patience=0", "--set", "checkpoint_seconds=1000")
    with held("fit step 13", "fit", "split", "--out", "rare", *rarely, cwd=work) as process:
        assert not (work / "rare.partial" / "checkpoint.safetensors").exists()
        ended = process.interrupted()
    assert ended.code == 130 and ended.error.endswith("milrec: interrupted\n") and "Traceback" not in ended.error
    assert f"Interrupted; to resume: milrec fit split --out rare {' '.join(rarely)} --resume\n" in ended.out
    assert (work / "rare.partial" / "checkpoint.safetensors").exists()
    shutil.rmtree(work / "rare.partial")


def test_an_interrupted_fit_without_checkpoints_says_that_nothing_was_kept(work, monkeypatch):
    def interrupt(self, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr("milrec.cli.progress.FitDisplay.report", interrupt)
    done = milrec("fit", "split", "--out", "interrupted", "--model", "ease", cwd=work)
    assert done.returncode == 130 and done.stdout == "Interrupted; nothing was kept\n"
    assert not list(work.glob("interrupted*"))


def test_resuming_with_other_settings_than_the_finished_model_is_refused(work):
    wrong = ("fit", "split", "--out", "model", "--resume", "--loss", "square")
    assert "other data, settings or seed" in refuses(*wrong, cwd=work)


def test_a_fit_that_was_killed_before_its_first_checkpoint_replaces_another_model_all_the_same(work):
    shutil.copytree(work / "model", work / "old")
    again = succeeds("fit", "split", "--out", "old", "--model", "ease", "--force", "--resume", cwd=work)
    assert "starts from the beginning" in again.stderr
    assert "ease" in (work / "old" / "milrec.json").read_text()
    shutil.rmtree(work / "old")


def test_a_full_disk_loses_nothing(tmp_path):
    """A file size limit stands for a full disk: the write fails in the middle."""
    succeeds("simulate", "--out", "data", "--users", 60, "--items", 40, cwd=tmp_path)

    def small_files():
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    done = in_a_process("split", "data", "--out", "split", cwd=tmp_path, preexec_fn=small_files)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_show_tells_what_each_folder_holds(work):
    for name, word in (("data", "data folder"), ("split", "protocol"), ("model", "missing_weight")):
        assert word in succeeds("show", name, cwd=work).stdout


def test_models_without_a_loss_are_fitted_judged_and_listed_like_any_other(work):
    for model, values in (("ease", ["regularization=200"]), ("slim", ["l1=2", "l2=20"]), ("wmf", ["n_factors=8"])):
        settings = [part for value in values for part in ("--set", value)]
        assert "Fitted in" in succeeds("fit", "split", "--out", model, "--model", model, *settings, cwd=work).stdout
        assert values[0] in succeeds("show", model, cwd=work).stdout
    succeeds("evaluate", "ease", "split", "--json", "ease.json", cwd=work)
    assert json.loads((work / "ease.json").read_text())["ndcg@100"] > 0
    item = succeeds("recommend", "ease", "--user", "u001", "-n", 1, cwd=work).stdout.splitlines()[1].split("\t")[2]
    succeeds("similar", "ease", item, cwd=work)
    known = succeeds("models", cwd=work).stdout
    assert all(model in known for model in ("ease", "slim", "wmf"))


def test_the_dial_turns_lists_towards_rare_items(work):
    def popularity(*dial):
        rows = succeeds("recommend", "model", "--user", "u001", "-n", 30, *dial, cwd=work).stdout.splitlines()
        return [int(row.split("\t")[rows[0].split("\t").index("popularity")]) for row in rows[1:]]

    rare, plain = popularity("--dial", 1e6), popularity()
    assert rare == sorted(rare) and sum(rare) < sum(plain)
    succeeds("evaluate", "model", "split", "--json", "plain.json", cwd=work)
    done = succeeds("evaluate", "model", "split", "--dial", 2, "--json", "turned.json", cwd=work)
    assert "model on test, dial 2" in done.stdout
    plain, turned = (json.loads((work / f"{name}.json").read_text()) for name in ("plain", "turned"))
    assert turned["dial"] == 2 and turned["mean_popularity@20"] < plain["mean_popularity@20"]


@pytest.fixture(scope="module")
def marked(tmp_path_factory) -> Path:
    """A table of 40 users and 12 items that marks its test part, prepared and split by the commands."""
    folder = tmp_path_factory.mktemp("marked")
    rows = ["user,item,stars,test"]
    for user in range(40):
        for step in range(6):
            item = (user * 5 + step * (1 + user % 2)) % 12
            rows.append(f"u{user},i{item},{1 + (user + 3 * step) % 5},{step >= 4}")
    rows += ["stranger,i1,5,True", "u0,unheard,5,True"]
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    rated = ("--value", "stars", "--adopt-min", "3", "--reject-max", "2")
    succeeds("prepare", "table.csv", "--out", "train", *rated, "--where", "test=False", cwd=folder)
    succeeds("prepare", "table.csv", "--out", "test", *rated, "--where", "test=True", "--min-per-item", 0, cwd=folder)
    return folder


def test_a_test_part_that_the_data_comes_with(marked):
    facts = json.loads((marked / "train" / "milrec.json").read_text())["facts"]
    assert facts["where"] == {"test": "False"} and facts["rows"] == 160
    assert "where" in succeeds("show", "train", cwd=marked).stdout
    output = succeeds("split", "train", "--out", "split", "--test", "test", "--held-out", "0.2", cwd=marked).stdout
    assert "test unknown users" in output and "test pairs of unknown users" in output
    facts = json.loads((marked / "split" / "milrec.json").read_text())["facts"]
    assert facts["protocol"] == "given" and facts["test_source"] == "table.csv"
    assert (facts["test_unknown_users"], facts["test_pairs_of_unknown_users"]) == (1, 1)
    assert facts["test_dropped_targets"] >= 1  # u0 with something unheard
    like = ("split", "train", "--out", "like", "--test", "test", "--held-out", "0.2", "--like-test")
    assert "validation like test" in succeeds(*like, cwd=marked).stdout
    succeeds("fit", "split", "--out", "model", *QUICK, cwd=marked)
    shown = succeeds("evaluate", "model", "split", "--json", "measures.json", cwd=marked).stdout
    assert "auc_rejected" in shown
    assert 0 <= json.loads((marked / "measures.json").read_text())["auc_rejected"] <= 1


def test_a_fit_says_how_many_users_it_leaves_out(tmp_path):
    rows = [(f"u{user}", f"i{(user + place) % 40}") for user in range(200) for place in range(6)]
    rows += [(f"single {user}", f"i{user % 40}") for user in range(80)]
    (tmp_path / "table.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in rows))
    succeeds("prepare", "table.csv", "--out", "data", cwd=tmp_path)
    succeeds("split", "data", "--out", "split", cwd=tmp_path)
    said = succeeds("fit", "split", "--out", "model", *QUICK, cwd=tmp_path).stdout
    assert "of 280 users have fewer than two items in the training part and are left out of the steps" in said
    for more in (("--set", "skip_singles=false"), ("--model", "mf"), ("--model", "popularity")):
        quick = () if "popularity" in more else QUICK
        said = succeeds("fit", "split", "--out", "model", "--force", *quick, *more, cwd=tmp_path).stdout
        assert "left out" not in said


def test_a_refit_learns_from_validation_too(work):
    output = succeeds("fit", "split", "--out", "refitted", "--refit", *QUICK, cwd=work).stdout
    assert "Kept the weights of step" in output
    facts = json.loads((work / "refitted" / "milrec.json").read_text())["facts"]
    first = json.loads((work / "model" / "milrec.json").read_text())["facts"]
    assert facts["refitted"] is True and "refitted" not in first
    assert facts["history"]["iterations"][-1] == first["history"]["kept_iteration"]
    assert facts["adopted"] > first["adopted"]
    succeeds("evaluate", "refitted", "split", cwd=work)
    assert "judge it on test" in refuses("evaluate", "refitted", "split", "--on", "validation", cwd=work)
    again = ("fit", "split", "--out", "refitted", *QUICK, "--resume")
    assert "already fitted" in succeeds(*again, "--refit", cwd=work).stdout
    assert "other data, settings or seed" in refuses(*again, cwd=work)
    assert not (work / "refitted.partial").exists()


def test_an_interrupted_refit_resumes_to_exactly_the_same_weights(work):
    command = ("fit", "split", "--out", "torn", "--refit", *LONGER)
    with held("fit step 13", *command, cwd=work) as process:
        process.pause.arrive()  # the fit has passed; this is the refit
        assert (work / "torn.partial" / "refit.safetensors").exists()
        process.killed()
    assert "--resume" in refuses(*command, cwd=work)
    succeeds(*command, "--resume", cwd=work)
    succeeds("fit", "split", "--out", "untorn", "--refit", *LONGER, cwd=work)
    assert weights(work / "torn") == weights(work / "untorn")
    assert not (work / "torn.partial").exists()


def test_a_refit_that_cannot_be_is_refused_before_the_fit(work):
    succeeds("split", "data", "--out", "by-users", "--protocol", "users", cwd=work)
    assert "holds out users for validation" in refuses("fit", "by-users", "--out", "m", "--refit", *QUICK, cwd=work)
    assert not (work / "m").exists() and not (work / "m.partial").exists()


RUN = """
title = "three fits and a search"
[data.simulate]
users = 150
items = 80
[search]
trials = 2
[[models]]
name = "Popularity"
model = "popularity"
[[models]]
name = "Diverges"
loss = "mil"
settings = { epochs = 2, n_factors = 8, learning_rate = 1e36 }
[[models]]
name = "Searched"
model = "ease"
search = { regularization = [10.0, 500.0] }
"""


def test_show_says_what_a_run_has_finished_what_failed_and_what_was_interrupted(tmp_path):
    (tmp_path / "recipe.toml").write_text(RUN)
    assert "the run ended with failures" in milrec("experiment", "recipe.toml", "--out", "run", cwd=tmp_path).stderr
    shown = succeeds("show", "run", cwd=tmp_path).stdout
    assert "finished: Popularity; Searched\n" in shown and "nothing yet" not in shown
    assert "trials of searches: 2 done\n" in shown
    assert "failed: Diverges: " in shown and "lower learning_rate" in shown
    assert "under way" not in shown and "interrupted" not in shown
    (tmp_path / "run/jobs/popularity-seed0/result.json").unlink()
    shown = succeeds("show", "run", cwd=tmp_path).stdout
    assert "finished: Searched\n" in shown and "interrupted: Popularity\n" in shown
    with locked(tmp_path / "run/.lock"):
        assert "under way: Popularity\n" in succeeds("show", "run", cwd=tmp_path).stdout
    shutil.rmtree(tmp_path / "run/jobs")
    assert "finished: nothing yet\n" in succeeds("show", "run", cwd=tmp_path).stdout


def test_help_names_every_data_set_format_model_and_loss(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # no name is cut at the end of a line
    shown = {command: succeeds(command, "--help").stdout for command in ("download", "prepare", "fit", "recommend")}
    assert all(name in shown["download"] for name in NAMES)
    assert all(name in shown["prepare"] for name in FORMATS)
    assert all(name in shown["fit"] for name in [*MODELS, *LOSSES])
    assert all(ending in shown["recommend"] for ending in LIST_ENDINGS)


def test_lists_with_a_share_of_the_long_tail_say_what_they_cost(work):
    done = succeeds("recommend", "model", "--user", "u001", "-n", 10, "--long-share", 0.4, cwd=work)
    assert "hits are expected of a list of 10" in done.stderr and "λ = " in done.stderr
    done = succeeds("evaluate", "model", "split", "--long-share", 0.4, "--json", "aimed.json", cwd=work)
    aimed = json.loads((work / "aimed.json").read_text())
    assert "% long tail on average over users (λ = " in done.stdout and aimed["bonus"] != 0
    succeeds("evaluate", "model", "split", "--json", "plain.json", cwd=work)
    plain = json.loads((work / "plain.json").read_text())
    assert abs(aimed["long_share@20"] - 40) <= abs(plain["long_share@20"] - 40)
    weighted = ("recommend", "model", "--adopted", "i001,i002", "--weights")
    succeeds(*weighted, "3,1", cwd=work)
    for weights, sentence in (
        ("3", "--weights and --adopted must have equally many entries, not 1 and 2"),
        ("3,many", "--weights needs numbers separated by commas, e.g. 12,3"),
        ("3,0", "the weight of item 'i002' must be a number from 1e-30"),
    ):
        assert sentence in milrec(*weighted, weights, cwd=work).stderr
    wrong = ("evaluate", "model", "split", "--long-share", "30")
    assert "--long-share must be a share from 0 to 1, such as 0.3, not 30.0" in milrec(*wrong, cwd=work).stderr
