"""How to serve, as one value that a process can be told."""

from __future__ import annotations

from pydantic import Field

from milrec.server.gate.keys import Keys
from milrec.server.limits import Limits
from milrec.settings import Settings


class Plan(Settings):
    """All that a process has to know about a server, apart from its models."""

    limits: Limits = Field(default_factory=Limits)
    together: int = Field(256, ge=1, description="the most requests that are scored together")
    key_hashes: list[tuple[str, str]] = Field(default_factory=list, description="names and hashes of keys")
    open_metrics: bool = False
    hosts: list[str] | None = Field(None, description="names that the server answers to; by default any")
    model_classes: list[str] = Field(default_factory=list, description="encoders by name: MODULE:CLASS")

    @property
    def keys(self) -> Keys:
        return Keys(tuple(self.key_hashes))

    @property
    def known_hosts(self) -> frozenset[str] | None:
        return None if self.hosts is None else frozenset(self.hosts)
