"""Keys: made once, kept as hashes, asked for at the door."""

import re

import httpx
import pytest

from commands import milrec
from milrec.errors import SettingsError
from milrec.server.gate.keys import Keys, new_key, read_keys
from pausing import LONG
from serving import refused, until_ready

pytestmark = pytest.mark.xdist_group("serve")  # one worker: what it sets up takes long


def test_a_key_is_kept_as_a_hash_and_known_again(tmp_path):
    (key, line), (other, second) = new_key("shop"), new_key("desk")
    assert key not in line and re.fullmatch(r"shop sha256:[0-9a-f]{64}", line) and key != other
    (tmp_path / "keys").write_text(f"# keys\n\n{line}\n")
    keys = read_keys(tmp_path / "keys", second)
    assert keys.owner(key) == "shop" and keys.owner(other) == "desk" and keys.owner("") is None
    assert keys.owner(key[:-1]) is None and keys.owner(line) is None and keys.owner("\ud800") is None
    assert not Keys()


@pytest.mark.parametrize("text", ["", "# nothing\n", "milrec_secret\n", "shop sha256:12\n", "a b sha256:" + "0" * 64])
def test_a_key_file_that_holds_no_hashes_is_refused_without_repeating_it(tmp_path, text):
    (tmp_path / "keys").write_text(text)
    with pytest.raises(SettingsError) as error:
        read_keys(tmp_path / "keys", "")
    assert "secret" not in str(error.value) and "`new_key(NAME)`" in str(error.value)


@pytest.mark.parametrize("text", ["", " ", "# nothing", ","])
def test_a_variable_without_a_key_does_not_let_everyone_in(monkeypatch, text):
    monkeypatch.setenv("MILREC_KEYS", text)
    with pytest.raises(SettingsError, match="MILREC_KEYS is set but has no key"):
        read_keys(None)
    monkeypatch.delenv("MILREC_KEYS")
    assert not read_keys(None)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a\nb", "ä"])
def test_a_key_needs_a_plain_name(name):
    with pytest.raises(SettingsError, match="cannot be the name of a key"):
        new_key(name)


def test_the_command_makes_keys():
    done = milrec("serve", "--new-key", "shop")
    key = done.stderr.splitlines()[0]
    assert done.returncode == 0 and read_keys(None, done.stdout).owner(key) == "shop"


def test_a_key_lets_a_client_in_and_is_written_nowhere(live, key_and_file):
    key = key_and_file[0]
    with httpx.Client(base_url=live.url, timeout=LONG) as client:
        for path in ("/v1/models", "/v1/nothing", "/metrics", "/v1/models/live/items"):
            answer = client.get(path)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            assert "needs a key" in refused(answer)
            wrong = client.get(path, headers={"authorization": "Bearer milrec_wrong"})
            assert wrong.status_code == 401 and "does not know this key" in refused(wrong)
        for headers in ({"authorization": f"Bearer {key}"}, {"authorization": f"bearer {key}"}, {"x-api-key": key}):
            assert client.get("/v1/models", headers=headers).status_code == 200
        for headers in ({"authorization": f"Basic {key}"}, {"authorization": key}, {"x-api-key": key + "x"}):
            assert client.get("/v1/models", headers=headers).status_code == 401
        for path in ("/healthz", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
        until_ready(client)
    live.until("request", 10)
    text = "".join(live.log)
    assert key not in text and "milrec_wrong" not in text and key not in str(key_and_file[1].read_text())
    assert {line["key"] for line in live.events("request")} >= {"shop", None}
