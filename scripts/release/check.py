"""Installs what `scripts/release/run` has built into empty folders, and runs a message through it.

    check.py DIST VERSION

The server is the program of the archive. A client of the wheel and one of the npm packages talk to each other over it;
then the servers inside the wheel and inside the npm package each answer a client. Nothing of the repository is used.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TIME_S = 60.0

PYTHON_CLIENT = """
import sys
import tidewire.sync

with tidewire.sync.connect(sys.argv[1]) as client:
    client.subscribe(["questions"])
    print("subscribed", flush=True)
    question = client.next(timeout=60)
    assert question.payload == {"n": 20}, question
    client.publish("answers", {"n": question.payload["n"] + 1}, type="answer")
"""

NODE_CLIENT = """
import { open } from "@tidewire/client";

const client = await open(process.argv[2]);
const answers = client.subscribe("answers");
await answers.ready();
// The loop begins before the answer can come.
const first = answers[Symbol.asyncIterator]().next();
await client.publish("questions", { n: 20 }, { type: "question" });
const { type, payload } = (await first).value;
console.log(type, payload.n);
await client.close();
"""

PYTHON_SERVER = """
import asyncio
import sys
import tidewire

assert tidewire.__version__ == sys.argv[1], tidewire.__version__

async def main():
    server = tidewire.Server(port=0, no_auth=True)

    @server.request("sum")
    def add(message):
        return sum(message.payload)

    async with server:
        serving = asyncio.create_task(server.serve())
        async with tidewire.connect(server.url) as client:
            print("sum", await client.request([20, 1], type="sum"))
        server.stop()
        await serving

asyncio.run(main())
"""

NODE_SERVER = """
import { Server, version } from "tidewire";
import { open } from "@tidewire/client";

if (version !== process.argv[2]) throw new Error(`the version is ${version}`);
const server = new Server({ port: 0, noAuth: true });
server.handle("sum", ({ payload }) => payload[0] + payload[1]);
await server.start();
const client = await open(server.url);
console.log("sum", await client.request("sum", [20, 1]));
await client.close();
await server.stop();
"""


def main(dist: Path, version: str) -> None:
    check_sums(dist)
    with tempfile.TemporaryDirectory(prefix="tidewire-dist-") as name:
        folder = Path(name)
        program = unpack(only(dist, f"tidewire-{version}-*.tar.gz"), folder)
        python = install_wheel(only(dist, f"tidewire-{version}-*.whl"), folder)
        packages = install_npm(sorted(dist.glob("*.tgz")), version, folder)
        said = run([program, "--version"], folder)
        assert version in said, said
        with serving(program, folder) as url:
            talk(python, packages, url)
        print("A message went through the program, the wheel and the npm package.")
        assert run([python, "-c", PYTHON_SERVER, version], folder) == "sum 21\n"
        print("The server of the wheel answers.")
        assert node(packages, "server.mjs", NODE_SERVER, version) == "sum 21\n"
        print("The server of the npm package answers.")


def check_sums(dist: Path) -> None:
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        wanted, name = line.split(maxsplit=1)
        found = hashlib.sha256((dist / name).read_bytes()).hexdigest()
        assert found == wanted, f"{name} is not the file of SHA256SUMS; build it again"


def only(dist: Path, pattern: str) -> Path:
    found = list(dist.glob(pattern))
    assert len(found) == 1, f"{dist} has {len(found)} files {pattern}; build them with make dist"
    return found[0]


def unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    program = folder / archive.name.removesuffix(".tar.gz") / "tidewire"
    if "-musl" in archive.name:
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        words = linked.stdout + linked.stderr
        assert "statically linked" in words or "not a dynamic" in words, f"it is not static: {words}"
    return program


def install_wheel(wheel: Path, folder: Path) -> Path:
    venv.create(folder / "python", with_pip=True)
    python = folder / "python" / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", wheel], folder)
    return python


def install_npm(archives: list[Path], version: str, folder: Path) -> Path:
    wanted = {f"tidewire-{package}-{version}.tgz" for package in ("client", "react", "vue", "svelte", "bench")}
    wanted.add(f"tidewire-{version}.tgz")
    assert {archive.name for archive in archives} == wanted, archives
    packages = folder / "npm"
    packages.mkdir()
    (packages / "package.json").write_text('{"private": true, "type": "module"}\n')
    run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "react@19", "vue@3", "svelte@5", *archives], packages)
    return packages


def talk(python: Path, packages: Path, url: str) -> None:
    """A question from Node to Python, and the answer."""
    client = subprocess.Popen(
        [python, "-c", PYTHON_CLIENT, url], cwd=packages.parent, stdout=subprocess.PIPE, text=True
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "subscribed\n", "the client of the wheel has not subscribed"
        assert node(packages, "client.mjs", NODE_CLIENT, url) == "answer 21\n"
        assert client.wait(TIME_S) == 0
    finally:
        client.kill()
        client.wait()


@contextmanager
def serving(program: Path, folder: Path) -> Iterator[str]:
    """The address of the program as a server that lets everyone publish."""
    arguments = ["serve", "--no-auth", "--topics-open", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen([program, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            if line.startswith("listening on "):
                yield line.removeprefix("listening on ").strip()
                return
        raise AssertionError(f"the program has ended: {''.join(lines)}")
    finally:
        server.kill()
        server.wait()


def node(packages: Path, name: str, source: str, *arguments: str) -> str:
    (packages / name).write_text(source)
    return run(["node", name, *arguments], packages)


def run(command: list[str | Path], folder: Path) -> str:
    """The output of a program. The environment names no library of the repository."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NODE_PATH")}
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIME_S if command[0] == "node" else 10 * TIME_S,
        check=False,
    )
    assert ended.returncode == 0, f"{command[0]} ended with {ended.returncode}: {ended.stdout}"
    return ended.stdout


os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost"
main(Path(sys.argv[1]).resolve(), sys.argv[2])
