"""Limits: what one request to the server, and all at a time, may ask for."""

from __future__ import annotations

from pydantic import Field

from milrec.config import Settings


class Limits(Settings):
    """What one request, and all at a time, may ask for."""

    max_body: int = Field(1_000_000, ge=1, description="bytes of a request body")
    max_list: int = Field(1_000, ge=1, description="items in a list (n)")
    max_ids: int = Field(10_000, ge=1, description="ids in adopted, rejected, allow and exclude, each")
    max_reasons: int = Field(20, ge=0, description="reasons for each item")
    max_batch: int = Field(100, ge=1, description="requests in a batch")
    max_total: int = Field(50_000, ge=1, description="n × (1 + reasons + rules), over all lists of a request")
    max_running: int = Field(512, ge=1, description="lists at a time; who asks for more is told to try again")
    timeout: float = Field(30, gt=0, description="seconds until a request is given up")
