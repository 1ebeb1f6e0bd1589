"""Addresses that are no Ray cluster: one sentence, soon, without a cluster and without what Ray writes."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from milrec.cluster import session
from milrec.errors import ClusterError, SettingsError


@contextmanager
def answering(greeting: bytes) -> Iterator[str]:
    """The address of a server that sends the same bytes to everyone and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 10)
                connection.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_a_closed_port_is_refused_before_ray_tries(prefix):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, and not listening
        address = f"{prefix}127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"no Ray cluster answers at '{address}' \\(Connection refused\\)"):
            session._refuse_unreachable(address)


@pytest.mark.parametrize("prefix", ["", "ray://"])
@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0", b""])
def test_another_server_than_ray_is_refused_before_ray_tries(prefix, greeting):
    with answering(greeting) as address, pytest.raises(ClusterError) as error:
        session._refuse_unreachable(prefix + address)
    assert str(error.value) == f"what answers at '{prefix}{address}' is not a Ray cluster; check the host and the port"


def test_a_greeting_with_settings_may_be_ray():
    with answering(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])) as address:
        session._refuse_unreachable(address)


def test_an_encrypted_cluster_is_left_to_ray(monkeypatch):
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        session._refuse_unreachable(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("address", ["nowhere", "host:", ":6379", "host:0", "host:65536", "host:port"])
def test_an_address_needs_a_host_and_a_port(address):
    with pytest.raises(SettingsError, match=f"must be local, auto, HOST:PORT or ray://HOST:PORT, not '{address}'"):
        session._refuse_unreachable(address)


def test_what_libraries_write_to_standard_error_is_hidden_for_a_while_only(capfd):
    with session._silenced():
        os.write(2, b"twenty lines\n")
    os.write(2, b"one line\n")
    assert capfd.readouterr().err == "one line\n"
