"""The bench as a program, against real servers."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import jsonschema
import pytest
import tidewire

ROOT = pathlib.Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "report-1.schema.json").read_text())
SERVER_SECRET = "the secret of a server in a test, 32 bytes or more"


def program() -> pathlib.Path:
    """The program `tidewire`: that of the environment, or the newest that was built."""
    if named := os.environ.get("TIDEWIRE_PROGRAM"):
        return pathlib.Path(named)
    built = [ROOT / "target" / kind / "tidewire" for kind in ("debug", "release")]
    known = [path for path in built if path.exists()]
    assert known, "build the program first: cargo build --package tidewire-cli"
    return max(known, key=lambda path: path.stat().st_mtime)


def start(*words: str, out: pathlib.Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidewire.bench", "--out", str(out), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TIDEWIRE_PROGRAM": str(program())},
    )


# How fast is no matter here, and a busy machine makes rates noisy.
BELIEVED = {"valid": 0, "generator_bound": 3, "noisy": 4}


def bench(*words: str, out: pathlib.Path, code: int | None = None) -> tuple[dict[str, Any], str]:
    """The report of a run that ended with this exit code, or with that of figures that can be believed; its words."""
    program = start(*words, out=out)
    said, told = program.communicate(timeout=120)
    assert program.returncode in (BELIEVED.values() if code is None else (code,)), told + said
    path = out / "report.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if report:
        jsonschema.validate(report, SCHEMA)
    return report, said + told


def test_the_worker_keeps_the_contract() -> None:
    check = [str(program()), "worker", "--check", f"{sys.executable} -m tidewire.worker"]
    said = subprocess.run(check, capture_output=True, text=True, timeout=200, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def accounted(result: dict[str, Any]) -> bool:
    messages = result["messages"]
    return bool(
        messages["lost"] == 0
        and messages["offered"] == messages["confirmed"] + messages.get("refused", 0)
        and messages["delivered"] == messages["confirmed"]
    )


@pytest.mark.parametrize("processes", ["1", "2"])
def test_messages_are_counted_on_both_sides(tmp_path: pathlib.Path, processes: str) -> None:
    words = [
        "--quick",
        "--test",
        "throughput,size-matrix",
        "--payload-bytes",
        "64,4096",
        "--processes",
        processes,
    ]
    report, said = bench(*words, out=tmp_path)
    assert (report["schema"], report["tool"]["language"]) == ("tidewire-report/1", "python")
    assert report["target"]["embedded"] is True
    assert report["target"]["server"].startswith("tidewire/")
    assert [result["payload_bytes"] for result in report["results"]] == [175, 64, 4096]
    for result in report["results"]:
        assert accounted(result), result
        assert result["verdict"] in BELIEVED
        assert result["rate_per_s"] > 0
        assert result["cpu"]["client_s"] >= 0
        assert result["memory"]["server_rss_bytes"] > 0
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "report.md").exists()
    assert "throughput" in said


def test_connections_and_their_latencies(tmp_path: pathlib.Path) -> None:
    words = ["connection-storm,connect-latency,rapid-reconnect,ping-latency,sustained-hold,connection-limit"]
    report, _ = bench("--quick", "--connections-max", "20", "--test", *words, out=tmp_path)
    results = {result["test"]: result for result in report["results"]}
    assert list(results) == words[0].split(",")
    assert results["connection-storm"]["latency_us"]["count"] == 10
    assert results["connect-latency"]["latency_us"]["count"] == 20
    assert results["connect-latency"]["connections"] == 1
    assert results["rapid-reconnect"]["rate_per_s"] > 0
    assert results["ping-latency"]["latency_us"]["count"] == 200
    assert results["sustained-hold"]["survival"] == {"survived": 10, "percent": 100.0}
    limit = results["connection-limit"]["limit"]
    assert (limit["largest_stable"], limit["stopped_by"]) == (20, "plan")
    assert [(probe["phase"], probe["connections"]) for probe in limit["probes"]] == [
        ("doubling", 10),
        ("doubling", 20),
    ]
    assert {result["verdict"] for result in report["results"]} <= BELIEVED.keys()


@pytest.mark.parametrize("layer", ["--deflate", "--encrypt"])
def test_messages_may_be_compressed_or_encrypted(tmp_path: pathlib.Path, layer: str) -> None:
    words = ["--quick", "--test", "echo", "--payload-bytes", "2048", layer]
    (result,) = bench(*words, out=tmp_path)[0]["results"]
    assert accounted(result)
    assert result.get("extensions") == (["permessage-deflate"] if layer == "--deflate" else None)
    assert result.get("encryption_version") == (2 if layer == "--encrypt" else None)


def test_a_server_without_deflate_is_told(tmp_path: pathlib.Path, serve: Any) -> None:
    server = serve(jwt_secret=SERVER_SECRET)
    words = ["--quick", "--test", "connect-latency", "--jwt-secret", SERVER_SECRET, "--deflate"]
    report, _ = bench(server.url, *words, out=tmp_path, code=1)
    (result,) = report["results"]
    assert result["verdict"] == "failed"
    assert any("does not accept permessage-deflate" in note for note in result["notes"]), result["notes"]


def test_formats_are_compared(tmp_path: pathlib.Path) -> None:
    report, _ = bench("--quick", "--test", "format-comparison", out=tmp_path)
    assert [result["format"] for result in report["results"]] == ["json", "msgpack", "zlib"]
    assert report["results"][0]["ratio_to_json"] == 1.0
    assert all(accounted(result) for result in report["results"])


@pytest.mark.parametrize("pace", [[], ["--rate-per-s", "300"], ["--rate-per-s", "300", "--poisson"]])
def test_echoes_come_back_as_they_went(tmp_path: pathlib.Path, pace: list[str]) -> None:
    report, _ = bench("--quick", "--test", "echo", *pace, out=tmp_path)
    (result,) = report["results"]
    assert accounted(result)
    assert result["latency_us"]["count"] == result["messages"]["confirmed"]
    assert result["latency_us"]["origin"] == ("intended" if pace else "sent")
    assert ("latency_other_us" in result) == bool(pace)


@pytest.mark.parametrize("words", [[], ["--rate-per-s", "100"], ["--processes", "2"]])
def test_every_subscriber_gets_every_publication(tmp_path: pathlib.Path, words: list[str]) -> None:
    report, _ = bench("--quick", "--test", "fan-out", *words, out=tmp_path)
    (result,) = report["results"]
    found = result["fan_out"]
    assert found["publications"] > 0
    assert (found["gaps"], found["duplicates"], found["wrong"]) == (0, 0, 0)
    assert result["messages"]["confirmed"] == 10 * found["publications"]
    assert ("publications_per_s" in found) == ("--rate-per-s" in words)


def test_steady_rates_second_by_second(tmp_path: pathlib.Path) -> None:
    report, _ = bench("--quick", "--test", "sustained-throughput", out=tmp_path)
    (result,) = report["results"]
    assert len(result["rate_series"]) >= 1
    assert result["duration_s"] >= 2


def test_another_server_by_its_url(tmp_path: pathlib.Path, serve: Any) -> None:
    server = serve(jwt_secret=SERVER_SECRET, ops_listen="127.0.0.1:0", rate_limit_capacity=0)
    host, port = server.ops_address
    words = ["--quick", "--test", "ping-latency", "--stats-url", f"http://{host}:{port}"]
    report, _ = bench(server.url, *words, "--jwt-secret", SERVER_SECRET, out=tmp_path)
    assert report["target"]["embedded"] is False
    assert SERVER_SECRET not in json.dumps(report)
    assert report["results"][0]["latency_us"]["count"] == 200
    wrong, _ = bench(server.url, *words, "--jwt-secret", "x" * 40, out=tmp_path / "wrong", code=1)
    assert wrong["results"][0]["verdict"] == "failed"
    assert any("could not be opened" in note for note in wrong["results"][0]["notes"])


def test_a_rate_limit_slows_the_client_and_loses_nothing(tmp_path: pathlib.Path, serve: Any) -> None:
    server = serve(
        ops_listen="127.0.0.1:0", rate_limit_capacity=600, rate_limit_refill_per_s=2000, errors_max=0
    )
    host, port = server.ops_address
    words = ["--quick", "--connections", "2", "--test", "throughput", "--stats-url", f"http://{host}:{port}"]
    program = start(server.url, *words, out=tmp_path)
    while program.poll() is None:
        server.receive(10_000, 50)
    report = json.loads((tmp_path / "report.json").read_text())
    (result,) = report["results"]
    assert accounted(result), result
    assert result["messages"]["refused"] == 0
    assert result["rate_per_s"] < 2 * (2000 + 600 / result["duration_s"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--test", "speed"], "expected one of connection-storm"),
        (["--connections", "0"], "--connections"),
        (["--test", "echo,throughput"], "by itself"),
        (["--poisson"], "--rate-per-s"),
        (["http://127.0.0.1/"], "ws://"),
        (["--deflate", "--encrypt"], "--encrypt"),
        (["--profile", "raw"], "v1"),
        (["--processes", "0"], "a number from 1"),
        (["--processes"], "a value is required"),
        (["--program", "/no/such/program"], "TIDEWIRE_PROGRAM"),
        (["ws://no.such.host.invalid/"], "no.such.host.invalid"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: pathlib.Path, words: list[str], reason: str) -> None:
    program = start(*words, out=tmp_path)
    said, told = program.communicate(timeout=60)
    assert program.returncode == 2
    assert said == ""
    assert len(told.splitlines()) == 1
    assert reason in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_tells_what_it_has(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    words = ["--quick", "--test", "connection-storm,sustained-hold", "--hold-s", "600"]
    program = start(*words, out=tmp_path)
    assert program.stderr is not None
    for line in program.stderr:
        if line.startswith("sustained-hold"):
            break
    program.send_signal(number)
    program.communicate(timeout=60)
    assert program.returncode == 130
    report = json.loads((tmp_path / "report.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["partial"] is True
    storm, *interrupted = report["results"]
    assert storm["test"] == "connection-storm"
    assert storm["verdict"] in BELIEVED
    assert all("interrupted" in result["doubts"] for result in interrupted)


def test_a_program_that_is_killed_leaves_nothing_running(tmp_path: pathlib.Path) -> None:
    program = start("--quick", "--test", "sustained-hold", "--hold-s", "600", out=tmp_path)
    assert program.stderr is not None
    for line in program.stderr:
        if line.startswith("sustained-hold"):
            break
    children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    assert len(children) >= 2
    program.kill()
    program.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: str) -> bool:
    """Whether there is such a process, and not only its exit code."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_that_ends_makes_the_report_partial(tmp_path: pathlib.Path) -> None:
    words = ["--quick", "--test", "sustained-hold,throughput", "--hold-s", "600"]
    program = start(*words, out=tmp_path)
    assert program.stderr is not None
    for line in program.stderr:
        if line.startswith("sustained-hold"):
            break
    children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    (server,) = [
        int(pid) for pid in children if b"\0serve\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(server, signal.SIGKILL)
    _, told = program.communicate(timeout=60)
    assert program.returncode == 1, told
    report = json.loads((tmp_path / "report.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["partial"] is True
    assert "the server ended during the run" in report["partial_reason"]
    assert "throughput" not in {result["test"] for result in report["results"]}


def test_a_load_may_come_from_workers(serve: Any) -> None:
    worker = f"exec '{program()}' worker --threads 1"
    server = serve()
    result = tidewire.load(server.url, connections=3, requests=31, workers=[worker, worker])
    assert (result.succeeded, result.failed) == (31, 0)
    assert "worker 2 (rust" in json.dumps(result.to_dict())
    with pytest.raises(tidewire.InvalidArgumentError, match="worker 1: exit status: 3"):
        tidewire.load(server.url, workers="exit 3")
