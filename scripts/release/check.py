"""Installs what `scripts/release/run` has built into empty folders, and runs a message through it.

    check.py DIST VERSION

The server is the program of the archive. A client of the wheel and one of the npm packages talk to each other over it;
then the servers inside the wheel and inside the npm package each answer a client. qemu-user runs the packages for
another machine. The program of the image serves in a root of its own. Nothing of the repository is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TIME_S = 60.0
# The Node that an emulator runs: npm has it for every machine.
NODE = "20.20.2"
# What Debian calls a machine, and what Node calls it.
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
NPM = {"x86_64": "x64", "aarch64": "arm64"}

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
    check_contents(dist, version)
    with tempfile.TemporaryDirectory(prefix="tidewire-dist-") as name:
        folder = Path(name)
        archives = {machine_of(file): file for file in dist.glob(f"tidewire-{version}-*-linux-*.tar.gz")}
        own = platform.machine()
        assert own in archives, f"{dist} has no program for {own}; build it with make dist"
        python = install_wheel(wheel_for(dist, version, own), folder)
        packages = install_npm(sorted(dist.glob("*.tgz")), version, sorted(archives), folder)
        for machine, archive in sorted(archives.items()):
            program = unpack(archive, folder)
            emulator = [] if machine == own else emulator_of(machine)
            if emulator is None:
                continue
            assert version in run([*emulator, program, "--version"], folder)
            with serving([*emulator, program], folder) as url:
                talk(python, packages, url)
            print(f"A message went through the program for {machine}, the wheel and the npm package.")
            check_image(dist / f"tidewire-{version}-image-{machine}.tar", program, machine, folder / f"image-{machine}")
            if machine == own:
                servers([python], ["node"], packages, machine, version)
            elif root := foreign_root(machine, folder):
                target = install_foreign(wheel_for(dist, version, machine), folder)
                foreign = install_npm(sorted(dist.glob("*.tgz")), version, sorted(archives), folder, machine)
                within = [*emulator, "-L", root, "-E", f"PYTHONPATH={target}", "-E", f"PYTHONHOME={root}/usr"]
                interpreters = [*within, root / "usr/bin/python3.11"], [*within, root / "package/bin/node"]
                servers(*interpreters, foreign, machine, version)


def servers(python: list[str | Path], node: list[str | Path], packages: Path, machine: str, version: str) -> None:
    """The servers of the wheel and of the npm package each answer a client."""
    assert run([*python, "-c", PYTHON_SERVER, version], packages.parent) == "sum 21\n"
    print(f"The server of the wheel for {machine} answers.")
    assert script(packages, node, "server.mjs", NODE_SERVER, version) == "sum 21\n"
    print(f"The server of the npm package for {machine} answers.")


def machine_of(archive: Path) -> str:
    return archive.name.split("-")[2]


def left_out(what: str, package: str) -> None:
    print(f"Left out: {what}. It needs {package} (Debian: apt-get install {package}).", file=sys.stderr)


def emulator_of(machine: str) -> list[str | Path] | None:
    """What runs programs of another machine."""
    emulator = shutil.which(f"qemu-{machine}")
    if emulator is None:
        left_out(f"the test of the packages for {machine}", "qemu-user")
    return [emulator] if emulator else None


def foreign_root(machine: str, folder: Path) -> Path | None:
    """The libraries, the Python and the Node of another machine, unpacked and not installed."""
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        left_out(
            f"the servers of the wheel and of the npm package for {machine}, also as another user than root",
            "debootstrap",
        )
        return None
    root = folder / "root"
    run(
        [
            "debootstrap",
            "--foreign",
            f"--arch={DEBIAN[machine]}",
            "--variant=minbase",
            "--include=python3",
            "bookworm",
            root,
        ],
        folder,
    )
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        # Folders that are links stay links.
        unpacked = f"dpkg --fsys-tarfile {package} | tar -x --keep-directory-symlink -C {root}"
        run(["bash", "-eo", "pipefail", "-c", unpacked], folder)
    # Debian's Node is older than the oldest that the package supports.
    archive = run(["npm", "pack", "--silent", f"node-linux-{NPM[machine]}@{NODE}"], folder).strip()
    run(["tar", "-xzf", folder / archive, "-C", root], folder)
    return root


def install_foreign(wheel: Path, folder: Path) -> Path:
    """The wheel and what it needs, for the Python of another machine."""
    target = folder / "foreign-python"
    machine = next(machine for machine in DEBIAN if machine in wheel.name)
    platforms = [f"--platform={name}_{machine}" for name in ("manylinux_2_17", "manylinux2014")]
    pip = [folder / "python/bin/python", "-m", "pip", "install", "--quiet", "--target", target, "--only-binary=:all:"]
    run([*pip, *platforms, "--python-version=3.11", "--implementation=cp", "--abi=abi3", "--abi=cp311", wheel], folder)
    return target


def check_contents(dist: Path, version: str) -> None:
    """The lists of contents name what one knows to be inside, with versions and licences."""
    for kind, known in (("program", "rustls"), ("python", "pyo3"), ("node", "napi")):
        content = json.loads((dist / f"tidewire-{version}-{kind}.cdx.json").read_text())
        assert content["bomFormat"] == "CycloneDX", content
        names = {component["name"]: component for component in content["components"]}
        found = [name for name in names if known.endswith(name)]
        assert found and all(component["version"] for component in names.values()), f"{kind}: {sorted(names)}"
        assert all("licenses" in component for component in names.values()), kind
    licences = (dist / "LICENSE-THIRD-PARTY.html").read_text()
    assert ">rustls " in licences and "Permission is hereby granted" in licences


def check_image(archive: Path, program: Path, machine: str, folder: Path) -> None:
    """The image has the program of the archive, and works where this process may change its root."""
    if not archive.exists():
        print(f"Left out: the image for {machine}, which was not built.", file=sys.stderr)
        return
    with tarfile.open(archive) as image:
        manifest = json.load(image.extractfile("manifest.json"))[0]
        config = json.load(image.extractfile(manifest["Config"]))
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(layer)) as files:
                files.extractall(folder, filter="data")
    assert config["architecture"] == DEBIAN[machine], config["architecture"]
    assert config["config"]["Entrypoint"] == ["/tidewire"], config["config"]
    assert (folder / "tidewire").read_bytes() == program.read_bytes()
    assert (folder / "licenses/LICENSE-THIRD-PARTY.html").exists()
    if machine == platform.machine() and os.geteuid() == 0:
        user = config["config"]["User"]
        with serving(["chroot", f"--userspec={user}", folder, "/tidewire"], folder):
            print("The program of the image serves, alone in its root and not as root.")


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


def wheel_for(dist: Path, version: str, machine: str) -> Path:
    return only(dist, f"tidewire-{version}-*_{machine}.whl")


def install_wheel(wheel: Path, folder: Path) -> Path:
    venv.create(folder / "python", with_pip=True)
    python = folder / "python" / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", wheel], folder)
    return python


def install_npm(archives: list[Path], version: str, machines: list[str], folder: Path, machine: str = "") -> Path:
    """All npm packages in an empty folder; for another machine if one is named."""
    wanted = {f"tidewire-{package}-{version}.tgz" for package in ("client", "react", "vue", "svelte", "bench")}
    wanted.add(f"tidewire-{version}.tgz")
    natives = {NPM[name]: f"tidewire-native-linux-{NPM[name]}-gnu-{version}.tgz" for name in machines}
    assert {archive.name for archive in archives} == wanted | set(natives.values()), archives
    packages = folder / f"npm{machine}"
    packages.mkdir()
    cpu = NPM[machine or platform.machine()]
    # As npm would find them in a registry: the native part for another processor is not installed.
    archives = [archive for archive in archives if archive.name in wanted | {natives[cpu]}]
    (packages / "package.json").write_text('{"private": true, "type": "module"}\n')
    npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--omit=optional"]
    # By force: npm refuses the package of another processor than its own.
    npm += ["--force"] if machine else []
    run([*npm, "react@19", "vue@3", "svelte@5", *archives], packages)
    return packages


def talk(python: Path, packages: Path, url: str) -> None:
    """A question from Node to Python, and the answer."""
    client = subprocess.Popen(
        [python, "-c", PYTHON_CLIENT, url], cwd=packages.parent, stdout=subprocess.PIPE, text=True
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "subscribed\n", "the client of the wheel has not subscribed"
        assert script(packages, ["node"], "client.mjs", NODE_CLIENT, url) == "answer 21\n"
        assert client.wait(TIME_S) == 0
    finally:
        client.kill()
        client.wait()


@contextmanager
def serving(program: list[str | Path], folder: Path) -> Iterator[str]:
    """The address of a program as a server that lets everyone publish."""
    arguments = ["serve", "--no-auth", "--topics-open", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen([*program, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
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


def script(packages: Path, node: list[str | Path], name: str, source: str, *arguments: str) -> str:
    (packages / name).write_text(source)
    return run([*node, name, *arguments], packages)


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
