"""python -m benchmarks.replicas --out FOLDER: two servers behind nginx, both replaced under load; nothing may fail.

nginx runs deploy/nginx.conf. Clients ask for lists all the time. After a while the first replica gets SIGTERM and is
started again with another model, then the second; requests that fail, and lists that neither model gives, are counted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import milrec
from benchmarks.clock import machine
from milrec.storage import write_json

_CLIENTS = 8
_USER = "u001"
_BETWEEN = 3.0  # seconds of load before, between and after the replacements
_CONFIGURATION = Path(__file__).resolve().parents[1] / "deploy" / "nginx.conf"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the models and the result")
    out: Path = parser.parse_args().out.resolve()
    if shutil.which("nginx") is None:
        raise SystemExit("nginx is not installed; on Debian: apt install nginx-light")
    out.mkdir(parents=True, exist_ok=True)
    answers = make_models(out)
    found = {"machine": machine(), **replaced_under_load(out, answers)}
    write_json(out / "replicas.json", found)
    print(json.dumps(found, indent=1))  # noqa: T201
    if found["failed"] or found["strange"] or not found["answers"]["new"]:
        raise SystemExit("requests failed, or lists are not those of either model")


def make_models(out: Path) -> dict[str, list[str]]:
    """Two models of the same data, and what each lists for the first user."""
    split = milrec.split_interactions(milrec.simulate(milrec.Simulation(n_users=500, n_items=300), seed=0), seed=0)
    lists = {}
    for name, loss in (("old", "pointwise"), ("new", "mil")):
        recommender = milrec.fit(split, "dae", loss, iterations=100, n_factors=16)
        recommender.save(out / name, replace=True)
        lists[name] = recommender.recommend([_USER])["item"].to_pylist()
    return lists


def replaced_under_load(out: Path, answers: dict[str, list[str]]) -> dict[str, Any]:
    seen: Counter[str] = Counter()
    slowest = [0.0]
    ended = threading.Event()
    with ExitStack() as stack:
        replicas = {port: stack.enter_context(server(out / "old", port, out)) for port in (8001, 8002)}
        stack.enter_context(nginx(out))
        clients = [threading.Thread(target=ask, args=(ended, answers, seen, slowest)) for _ in range(_CLIENTS)]
        for client in clients:
            client.start()
        started = time.monotonic()
        time.sleep(_BETWEEN)
        for port, old in replicas.items():
            old.send_signal(signal.SIGTERM)
            code = old.wait(60)
            seen["exit codes other than 0"] += code != 0
            stack.enter_context(server(out / "new", port, out))
            time.sleep(_BETWEEN)
        ended.set()
        for client in clients:
            client.join()
        spent = time.monotonic() - started
    lists = {name: seen[name] for name in answers}
    failed = {name: n for name, n in seen.items() if name not in (*answers, "strange") and n}
    return {
        "seconds": round(spent, 1),
        "clients": _CLIENTS,
        "requests": sum(lists.values()),
        "answers": lists,
        "failed": failed,
        "strange": seen["strange"],
        "slowest_seconds": round(slowest[0], 2),
    }


def ask(ended: threading.Event, answers: dict[str, list[str]], seen: Counter[str], slowest: list[float]) -> None:
    """One client: a request after another, over one connection as long as that lasts."""
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=30)
    body = json.dumps({"user": _USER})
    while not ended.is_set():
        started = time.monotonic()
        try:
            connection.request("POST", "/v1/recommend", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            seen[type(error).__name__] += 1
            connection.close()
            continue
        slowest[0] = max(slowest[0], time.monotonic() - started)
        if answer.status != 200:
            seen[f"status {answer.status}: {content[:80]!r}"] += 1
            continue
        items = [one["item"] for one in json.loads(content)["items"]]
        seen[next((name for name, own in answers.items() if own == items), "strange")] += 1


@contextmanager
def server(model: Path, port: int, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A replica that is ready."""
    with (out / f"server-{port}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "milrec", "serve", f"default={model}", "--port", str(port)],
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz")
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def nginx(out: Path) -> Iterator[None]:
    process = subprocess.Popen(["nginx", "-p", str(out), "-c", str(_CONFIGURATION)])
    try:
        wait_for("http://127.0.0.1:8080/readyz")
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_for(address: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise SystemExit(f"nothing answers at {address}") from None
            time.sleep(0.1)


if __name__ == "__main__":
    main()
