"""python -m benchmarks.engines --out FOLDER [--rows 10000000]: which engine prepares a table larger than memory.

The same work by DuckDB, by polars' streaming engine and by milrec: a CSV table of plays → distinct ids in order, and
pairs by the numbers of their ids, in order, with summed counts. milrec also checks what the others take for granted:
the number of rows by the file's bytes, quotes, texts, counts. DuckDB gets the memory that milrec has used.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.clock import machine
from benchmarks.large_tables import by_disk, write_plays
from benchmarks.watching import watched
from milrec.storage import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the table and the result")
    parser.add_argument("--rows", type=float, default=1e7)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    table = given.out / f"rows-{int(given.rows)}.csv"
    if not table.exists():
        write_plays(table, int(given.rows))
    found: dict[str, Any] = {"machine": machine(), "rows": int(given.rows)}
    for name, work in (("milrec", by_disk), ("duckdb", by_duckdb), ("polars", by_polars)):
        found[name] = watched(work, table, given.out / f"by-{name}")
        print(json.dumps({name: found[name]}), flush=True)  # noqa: T201
    write_json(given.out / f"engines-{int(given.rows)}.json", found)


def by_duckdb(table: Path, out: Path) -> int:
    import duckdb

    out.mkdir()
    engine = duckdb.connect(str(out / "work.db"))
    engine.execute(f"SET memory_limit='1500MB'; SET temp_directory='{out}/spill'; SET preserve_insertion_order=false")
    engine.execute(f"CREATE TABLE rows AS SELECT user_id, item_id, plays FROM read_csv('{table}', header=true)")
    for name in ("user", "item"):
        numbered = f"SELECT {name}_id AS id, row_number() OVER (ORDER BY {name}_id) - 1 AS number"
        engine.execute(f"CREATE TABLE {name}s AS {numbered} FROM (SELECT DISTINCT {name}_id FROM rows)")
        engine.execute(f"COPY (SELECT id FROM {name}s ORDER BY number) TO '{out}/{name}s.parquet'")
    pairs = (
        "SELECT users.number AS user, items.number AS item, sum(plays) AS weight FROM rows "
        "JOIN users ON users.id = user_id JOIN items ON items.id = item_id GROUP BY ALL ORDER BY ALL"
    )
    engine.execute(f"COPY ({pairs}) TO '{out}/adopted.parquet'")
    n_rows = engine.execute("SELECT count(*) FROM rows").fetchone()
    engine.close()
    return int(n_rows[0]) if n_rows else 0


def by_polars(table: Path, out: Path) -> int:
    import polars as pl

    out.mkdir()
    rows = pl.scan_csv(table)
    pairs = rows
    for name in ("user", "item"):
        ids = rows.select(pl.col(f"{name}_id").unique().sort().alias("id")).collect(engine="streaming")
        ids.write_parquet(out / f"{name}s.parquet")
        numbered = ids.lazy().with_row_index(name)
        pairs = pairs.join(numbered, left_on=f"{name}_id", right_on="id")
    summed = pairs.group_by("user", "item").agg(pl.col("plays").sum().alias("weight")).sort("user", "item")
    summed.sink_parquet(out / "adopted.parquet", engine="streaming")
    return int(rows.select(pl.len()).collect(engine="streaming").item())


if __name__ == "__main__":
    main()
