"""The torture campaign: its quick part, and every case that a campaign has found and that is kept in tests/cases."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the campaign needs Linux")

ROOT = Path(__file__).resolve().parents[1]
CASES = sorted((ROOT / "tests" / "cases").glob("*.json"))


def torture(*options: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torture", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_what_campaigns_have_found_stays_right(tmp_path):
    """All kept cases in one process, which is quicker than each in its own."""
    done = torture("--out", tmp_path, *(text for case in CASES for text in ("--case", case)))
    assert (tmp_path / "torture.json").exists(), done.stderr
    (tally,) = json.loads((tmp_path / "torture.json").read_text(encoding="utf-8"))["sections"]
    found = [f"{', '.join(fault['seeds'])}: {fault['kind']}: {fault['what']}" for fault in tally["found"]]
    assert not found and tally["trials"] >= len(CASES), "\n".join(found)


def test_the_quick_part_of_the_campaign_finds_nothing(tmp_path):
    done = torture("--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_trial_that_crashes_or_hangs_is_recorded_and_the_others_carry_on(tmp_path):
    code = (
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "from torture.verdicts import accepted\n"
        "from torture.workers import Crew, carry_out\n"
        "def trial(number, place):\n"
        "    if number == 3: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if number == 6: time.sleep(600)\n"
        "    if number == 8: raise ZeroDivisionError\n"
        "    return accepted\n"
        f"crew = Crew(Path({str(tmp_path)!r}), 2, float('inf'), most=12, limit=8)\n"
        "print(sorted((number, outcome.kind) for number, outcome in carry_out(trial, crew)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    kinds = {3: "crash", 6: "hang", 8: "traceback"}
    assert done.stdout.strip() == str([(number, kinds.get(number, "accepted")) for number in range(12)]), done.stderr


def test_a_case_is_the_same_after_it_was_written_down(tmp_path):
    import random

    from torture.cases import read_case, text_of
    from torture.tables import make_table

    for seed in range(50):
        case = make_table(random.Random(seed))
        (tmp_path / "case.json").write_text(text_of(case), encoding="utf-8")
        assert read_case(tmp_path / "case.json") == case


def test_the_campaign_sees_rows_that_are_lost():
    from collections import Counter

    from torture.oracle import Unreadable, pair_counts, read_table
    from torture.reading import same_pairs

    table = read_table(b'user,item,title\r\nu1,i1,"a\nb"\nu1,i1,""\n\nu2,"i ""2""",c', "t.csv")
    assert pair_counts(table, "user", "item") == Counter({("u1", "i1"): 2, ("u2", 'i "2"'): 1})
    assert same_pairs({("u1", "i1"): 2.0, ("u2", 'i "2"'): 1.0}, pair_counts(table, "user", "item")).kind == "accepted"
    assert same_pairs({("u1", "i1"): 1.0, ("u2", 'i "2"'): 1.0}, pair_counts(table, "user", "item")).failed
    with pytest.raises(Unreadable, match="still open"):
        read_table(b'user,item\nu1,"i1\nu2,i2\n', "t.csv")
