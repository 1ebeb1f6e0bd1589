"""What a run shows at its end: a narrow table of three measures, and the verdict in words."""

from types import SimpleNamespace

import made_up
from milrec.cli.output import measures_table, say_verdict
from milrec.cli.progress import RunDisplay
from milrec.report.verdict import verdict


def test_the_table_of_a_run_shows_three_measures_in_a_hundred_columns(capsys):
    measures_table(made_up.the_papers_run())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    for heading in ("Accuracy", "NDCG@100", "Popular items", "% of the first 200", "First item right", "Recall@1"):
        assert heading in text
    (mil,) = [line for line in lines if line.startswith("│ MIL  ")]
    assert [cell.strip() for cell in mil.split("│")[2:-1]] == ["0.369 (± 0.002)", "32.2 % (± 0.0)", "0.299 (± 0.002)"]


def test_the_verdict_is_wrapped_to_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    run = made_up.the_papers_run()
    say_verdict(run)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    assert " ".join(out.split()) == " ".join(verdict(run))


def test_bars_and_lines_of_a_run_use_the_plain_names_of_the_table():
    display = RunDisplay(2, ["CE_Point lin-sig", "my: model"])
    titles = ["CE_Point lin-sig", "CE_Point lin-sig, seed 3", "my: model: n_factors=8", "another"]
    jobs = [SimpleNamespace(title=title) for title in titles]
    assert [display.title(job) for job in jobs] == [
        "Cross-entropy", "Cross-entropy, seed 3", "my: model: n_factors=8", "another",
    ]  # fmt: skip
