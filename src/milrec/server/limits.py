"""What one request may ask for, how much work the server takes on at a time, and how long it waits for clients.

The options of `milrec serve` and the table in docs/serving.md say the same as these fields, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from milrec.settings import Settings

if TYPE_CHECKING:
    from milrec.lists.query import Query


class Limits(Settings):
    """Upper limits: of a single request, of all that are being answered at a time, and of connections."""

    max_body: int = Field(1_000_000, ge=1, description="bytes in a request body")
    max_list: int = Field(1_000, ge=1, description="items in a list (n)")
    max_ids: int = Field(10_000, ge=1, description="ids in each of adopted, rejected, allow and exclude")
    max_reasons: int = Field(20, ge=0, description="reasons for each item")
    max_batch: int = Field(100, ge=1, description="requests in a batch")
    max_total: int = Field(50_000, ge=1, description="total of n × (1 + reasons + rules) over all lists of a request")
    max_running: int = Field(512, ge=1, description="lists being made at a time; further requests get a 503 at once")
    max_wait: float = Field(
        0.1, ge=0.001, description="seconds of work ahead of a request; where there is more, it gets a 503 at once"
    )
    max_connections: int = Field(1_000, ge=1, description="open connections; beyond that, the longest idle is closed")
    max_headers: int = Field(32_768, ge=100, description="bytes in the address and the headers of a request")
    max_arriving: int = Field(64_000_000, ge=1, description="bytes of bodies that have not arrived completely, in all")
    header_timeout: float = Field(10, ge=0.01, description="seconds for the headers of a request to arrive")
    idle_timeout: float = Field(5, ge=0.01, description="seconds before an unused connection is closed")
    timeout: float = Field(30, ge=0.01, description="seconds before a request is given up")


def work_in(query: Query) -> int:
    """How much work a list is: n × (1 + reasons + rules); a share of the tail, or the like, is one more rule."""
    aims = sum(value is not None for value in query.aims.values())
    return query.n * (1 + query.reasons + len(query.rules) + aims)
