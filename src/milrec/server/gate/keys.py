"""API keys: made here, shown once, stored only as hashes, compared in constant time.

A key is 32 random bytes, so it cannot be guessed from a plain SHA-256 of it. A line of a key file is `NAME
sha256:HASH`; empty lines and lines that start with `#` are ignored.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from milrec.errors import SettingsError

KEYS_VARIABLE = "MILREC_KEYS"  # hash lines, one per line or separated by commas
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._@-]{1,64})\s+sha256:(?P<hash>[0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


@dataclass(frozen=True)
class Keys:
    """Who may use the server: names and the hashes of their keys. If there are none, everyone may."""

    hashes: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.hashes)

    def owner(self, key: str) -> str | None:
        """The name that a key belongs to. Every hash is compared, so that the time reveals nothing."""
        given, owner = _hash(key), None
        for name, kept in self.hashes:
            if hmac.compare_digest(given, kept):
                owner = name
        return owner


def new_key(name: str) -> tuple[str, str]:
    """A key, to be shown once, and the line to keep in the key file."""
    if not _NAME.fullmatch(name):
        raise SettingsError(f"'{name}' cannot be the name of a key; use 1 to 64 letters, digits or . _ @ -")
    key = "milrec_" + secrets.token_urlsafe(32)
    return key, f"{name} sha256:{_hash(key)}"


def read_keys(path: Path | None, environment: str | None = None) -> Keys:
    """The keys in a file and in the environment, together."""
    lines: list[tuple[str, str]] = []
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise SettingsError(f"there is no key file '{path}'; make a key with `new_key(NAME)`") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"key file '{path}' cannot be read ({error.__class__.__name__})") from None
        lines += _parsed(text.splitlines(), f"key file '{path}'")
        if not lines:
            raise SettingsError(f"key file '{path}' has no key; make one with `new_key(NAME)`")
    variable = os.environ.get(KEYS_VARIABLE) if environment is None else environment
    if variable is not None:
        more = _parsed(variable.replace(",", "\n").splitlines(), f"environment variable {KEYS_VARIABLE}")
        if not more:  # a secret that was never filled in must not let everyone in
            raise SettingsError(f"environment variable {KEYS_VARIABLE} is set but has no key; add one, or unset it")
        lines += more
    return Keys(tuple(lines))


def _parsed(lines: Iterable[str], where: str) -> list[tuple[str, str]]:
    """The name and the hash in each line. A wrong line is not repeated in the error: it may be a key."""
    found = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise SettingsError(f"line {number} of {where} is not NAME sha256:HASH; make a line with `new_key(NAME)`")
        found.append((match["name"], match["hash"]))
    return found


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
