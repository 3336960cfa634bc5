"""Python's websockets as the server of this project's client and load generator."""

import json
import subprocess
import threading

import pytest
from conftest import CLIENT, TIDEWIRE
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.sync.server import serve

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
