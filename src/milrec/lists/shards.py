"""Shards: the users of large work in groups of a fixed size, so that the result does not depend on who does which."""

from __future__ import annotations

SHARD = 65_536  # users


def shards(n_users: int) -> list[range]:
    """The numbers of all users, a shard at a time."""
    return [range(first, min(first + SHARD, n_users)) for first in range(0, n_users, SHARD)]
