"""python -m benchmarks.bare FILE: the least that FastAPI can do, a route that answers with what a file holds.

It has the loop and the parser of `milrec serve`, and none of its checks, limits, log lines or figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Response

from milrec.server.process import bound


def bare_app(stored: bytes) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/recommend")
    async def recommend() -> Response:
        return Response(stored, media_type="application/json")

    return app


def main() -> None:
    app, taken = bare_app(Path(sys.argv[1]).read_bytes()), bound("127.0.0.1", 0)
    config = uvicorn.Config(app, loop="asyncio", http="httptools", log_config=None, access_log=False, ws="none")
    taken.listen(2048)
    sys.stdout.write(f"http://127.0.0.1:{taken.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run([taken])


if __name__ == "__main__":
    main()
