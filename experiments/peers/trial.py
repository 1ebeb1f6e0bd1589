"""One model of a library at the task: python -m experiments.peers.trial LIBRARY MODEL TASK OUT [--checks].

Runs in the library's own environment, which has neither milrec nor anything else of ours: only pyarrow besides.
"""

import argparse
import importlib
import json
import resource
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

LENGTH = 100  # of a list
ASKED, ALLOWED, OWNED, GIVEN = 20, 5, 2, 5  # items asked for in a check; allowed, and theirs too; of a new user


def main() -> None:
    parser = argparse.ArgumentParser(description="One model of a library at the task.")
    parser.add_argument("library")
    parser.add_argument("model")
    parser.add_argument("task", type=Path, help="folder with train.parquet and test.parquet: user, item")
    parser.add_argument("out", type=Path, help="lists go to OUT.parquet, facts to OUT.json")
    parser.add_argument("--checks", action="store_true", help="also try what else the model can do")
    options = parser.parse_args()
    peer = importlib.import_module(f"experiments.peers.{options.library}")
    train = options.task / "train.parquet"
    users = sorted(set(pq.read_table(options.task / "test.parquet")["user"].to_pylist()))
    fitted, fit_seconds = timed(lambda: peer.fit(train, options.model))
    made, list_seconds = timed(lambda: table_of(peer.lists(fitted, users, LENGTH)))
    pq.write_table(made, f"{options.out}.parquet")
    facts: dict[str, Any] = {"fit": fit_seconds, "lists": list_seconds}
    if options.checks:
        facts["checks"] = checks(peer, fitted, pq.read_table(train), users[0])
        again = table_of(peer.lists(peer.fit(train, options.model), users, LENGTH))
        facts["checks"]["same_again"] = again.equals(made)
    Path(f"{options.out}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What it returns, and the seconds that it took: on the clock, and of all CPUs."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    result = work()
    return result, {"wall": round(time.perf_counter() - wall, 2), "cpu": round(cpu_seconds() - cpu, 2)}


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def table_of(lists: Any) -> pa.Table:
    """Lists in columns, each user's items best first → user, item, rank."""
    users, items = (
        pa.array(lists[name]) if not isinstance(lists, pa.Table) else lists[name] for name in ("user", "item")
    )
    rank: list[int] = []
    before = None
    for user in users.to_pylist():
        rank.append(rank[-1] + 1 if user == before else 1)
        before = user
    return pa.table({"user": users, "item": items, "rank": pa.array(rank, pa.int64())}).combine_chunks()


def checks(peer: ModuleType, fitted: Any, train: pa.Table, user: Any) -> dict[str, Any]:
    own = [item for one, item in zip(train["user"].to_pylist(), train["item"].to_pylist(), strict=True) if one == user]
    others = [item for item in sorted(set(train["item"].to_pylist())) if item not in own][:ALLOWED]
    allowed, excluded = [*others, *own[:OWNED]], sorted(set(train["item"].to_pylist()) - set(others))
    return {
        "allowed": tried(peer, "list_of_allowed", lambda make: outside(make(fitted, user, allowed, ASKED), others)),
        "excluded": tried(peer, "list_without", lambda make: outside(make(fitted, user, excluded, ASKED), others)),
        "newcomer": tried(peer, "list_for_newcomer", lambda make: seen_again(make(fitted, own[:GIVEN], ASKED), own)),
        "saved": tried(peer, "save", lambda save: saved(save, fitted)),
    }


def tried(peer: ModuleType, name: str, work: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """What comes of it, or why nothing does: it is not offered, or the library raises an error."""
    offered = getattr(peer, name, None)
    if offered is None:
        return {"offered": False}
    try:
        return {"offered": True, **work(offered)}
    except Exception as error:
        return {"offered": True, "error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def outside(items: list[Any], allowed: list[Any]) -> dict[str, Any]:
    """How long a list is, and how much of it should not be there: it is not allowed, or the user has it already."""
    return {"listed": len(items), "forbidden": sum(item not in allowed for item in items)}


def seen_again(items: list[Any], own: list[Any]) -> dict[str, Any]:
    return {"listed": len(items), "already_theirs": sum(item in own[:GIVEN] for item in items)}


def saved(save: Callable[[Any, Path], None], fitted: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        save(fitted, Path(folder))
        files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        return {
            "formats": sorted({format_of(path) for path in files}),
            "bytes": sum(path.stat().st_size for path in files),
        }


def format_of(path: Path) -> str:
    """What a file is, by its content. Loading a pickle can run code."""
    with path.open("rb") as file:
        start = file.read(16)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        return "pickle in zip" if any(name.endswith(".pkl") for name in names) else "npz"
    if start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05":
        return "pickle"
    if start.startswith(b"ARROW1"):
        return "Arrow"
    if start[8:9] == b"{":
        return "safetensors"
    return "JSON" if start.lstrip()[:1] in (b"{", b"[") else path.suffix.lstrip(".") or "unknown"


if __name__ == "__main__":
    main()
