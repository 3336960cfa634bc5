"""Python's websockets, and uWebSockets, as the server of this project's client and load generator."""

import json
import pathlib
import subprocess
import sys
import threading

import pytest
from conftest import CLIENT, TIDEWIRE
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.sync.server import serve

# A server of the benchmarks, on uWebSockets as the package socketify brings it along.
UWEBSOCKETS = pathlib.Path(__file__).parents[3] / "bench/peers/uwebsockets/server.py"

SERVERS = {
    "plain": {"compression": None},
    "deflate": {"compression": "deflate"},
    "no context": {"extensions": [ServerPerMessageDeflateFactory(True, True)], "compression": None},
    "small windows": {"extensions": [ServerPerMessageDeflateFactory(False, False, 9, 10)], "compression": None},
}


@pytest.fixture(params=SERVERS)
def url(request):
    def echo(connection):
        for message in connection:
            connection.send(message)

    with serve(echo, "127.0.0.1", 0, max_size=None, **SERVERS[request.param]) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


def test_every_message_comes_back(url):
    result = subprocess.run([CLIENT, "echo", url], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_bench(url, tmp_path):
    command = [TIDEWIRE, "bench", url, "--profile", "raw", "--test", "echo", "--connections", "5"]
    command += ["--duration-s", "0.5", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    # 3 and 4 are about how fast it went, not about what.
    assert result.returncode in (0, 3, 4), result.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    for result in report["results"]:
        messages = result["messages"]
        assert messages["confirmed"] > 0
        assert messages["lost"] == 0
        assert (result["connected"], result["failed"]) == (5, 0)


def load(url, *flags):
    """The requests and the errors of a load."""
    command = [TIDEWIRE, "load", url, "--json", "--quiet", *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout, result.stderr
    [found] = json.loads(result.stdout)["results"]
    return found["requests"], found.get("errors")


@pytest.mark.parametrize("reply", ["pong", "order"])
def test_load(url, reply):
    requests, errors = load(url, "-c", "5", "-n", "500", "--reply", reply)
    assert (requests["succeeded"], errors) == (500, None)


@pytest.fixture
def uwebsockets():
    """The URL of a server on uWebSockets, which sends each message to all connections."""
    command = [sys.executable, UWEBSOCKETS, "--port", "0", "--mode", "broadcast"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            assert line.startswith("listening on "), line
            yield f"ws://{line.removeprefix('listening on ').strip()}/"
        finally:
            server.terminate()


@pytest.mark.parametrize(("connections", "reply"), [("5", "pong"), ("1", "order")])
def test_load_of_uwebsockets(uwebsockets, connections, reply):
    requests, errors = load(uwebsockets, "-c", connections, "-n", "500", "--reply", reply)
    assert (requests["succeeded"], errors) == (500, None)
