"""Runs the shell, TOML and JSON snippets of README.md and docs/ as they stand there.

    python3 scripts/snippets.py PROGRAM [PAGE ...]

PROGRAM is a built `tidewire`. Each page is read as a reader would follow it: in one folder, from top to bottom, with
the variables of one shell. In place of the program stands a wrapper that keeps a server in the background until
another server needs its port, ends a measurement after a moment, and fails on the first wrong option. `curl` fails on
every status of an error, unless the command says which one it is to get: `# HTTP 503`. What other jobs run (`make`,
`cargo`, `npm`, `node`, `pip`, `python3`) is only looked up. Python snippets are run by
bindings/python/tests/test_docs.py, TypeScript by packages/client/test/docs.test.ts, those of Node by
bindings/node/test/docs.test.mjs, and the programs of ten-minutes.md by
packages/client/test/browser/ten-minutes.test.ts. Those in Rust are doctests of the crates that include the pages:
README.md, engine.md, client.md, for-rust.md and load.md. A Rust snippet of another page is an error here.

Exit code: 0 if every snippet works, 1 if one does not, 2 for a wrong command line.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SECRET = "0123456789abcdef0123456789abcdef"
# Pages that name the files of a release name those of this version.
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]  # type: ignore[index]
FENCE = re.compile(r"^```([a-z]+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL_LIMIT_S = 60

# Machines that only exist in the text, and what is said of a command that asks them.
ELSEWHERE = ("10.0.0.7", "echo.example.com", "chat.example.com", "mqtt.example.com", "prices.example.com")

# Programs that other jobs run.
LOOKED_UP = ("make", "cargo", "npm", "node", "pip", "tidewire-bench-ts", "python", "python3", "docker")

WRAPPER = r"""#!{python}
import os, signal, subprocess, sys, time
PROGRAM, STATE = {program!r}, {state!r}
arguments = sys.argv[1:]
command = arguments[0] if arguments else ""
if any(name in word for word in arguments for name in {elsewhere!r}):
    # Its options are looked at before anybody is asked.
    sys.exit(0)
if command in ("serve", "test-server") and "--check" not in arguments and "--help" not in arguments:
    def port_of(words):
        for flag in ("--listen", "--port"):
            if flag in words:
                return words[words.index(flag) + 1].rpartition(":")[2]
        return "5006" if command == "serve" else "7357"
    place = os.path.join(STATE, port_of(arguments))
    if os.path.exists(place):
        process_id = int(open(place).read())
        os.kill(process_id, signal.SIGTERM)
        for _ in range(600):
            if not os.path.exists(f"/proc/{{process_id}}") or " Z " in open(f"/proc/{{process_id}}/stat").read():
                break
            time.sleep(0.05)
    words = arguments + (["--drain-timeout-ms", "100"] if command == "serve" else [])
    with open(place + ".log", "w+") as log:
        server = subprocess.Popen([PROGRAM, *words], stdout=log, stderr=log, start_new_session=True)
    open(place, "w").write(str(server.pid))
    for _ in range(600):
        said = open(place + ".log").read()
        if "listening on" in said:
            sys.exit(0)
        if server.poll() is not None:
            sys.stderr.write(said)
            sys.exit(server.returncode or 1)
        time.sleep(0.05)
    sys.exit("the server does not listen")
if command in ("bench", "load") and "--help" not in arguments:
    child = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said, _ = child.communicate(timeout=1.5)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=20)
    sys.stdout.buffer.write(said)
    # What is measured in a moment on a busy machine is no matter here, only whether the command is right.
    sys.exit(0 if child.returncode in (0, 1, 3, 4, 5, 130) else child.returncode)
if command == "top" and "--once" not in arguments:
    arguments.append("--once")
os.execv(PROGRAM, [PROGRAM, *arguments])
"""

CURL = r"""#!{python}
import os, re, subprocess, sys
arguments, expected = sys.argv[1:], os.environ.pop("EXPECTED_STATUS", "")
if not expected:
    has_fail = any(re.fullmatch(r"-[a-zA-Z]*f[a-zA-Z]*|--fail(-with-body)?", word) for word in arguments)
    os.execv({curl!r}, [{curl!r}, *([] if has_fail else ["--fail-with-body"]), *arguments])
said = subprocess.run([{curl!r}, *arguments, "-w", "\\n%{{http_code}}"], stdout=subprocess.PIPE)
body, _, status = said.stdout.decode().rpartition("\n")
print(body)
if status != expected:
    sys.exit(f"the status is {{status}} and not {{expected}}")
"""

LOOK_UP = r"""#!{python}
import os, re, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
if name == "make":
    targets = re.findall(r"^([a-z-]+):", open({root!r} + "/Makefile").read(), flags=re.M)
    missing = [word for word in words if word not in targets]
elif name == "python3" and words[:2] == ["-m", "venv"]:
    # An environment whose programs are only looked up as well.
    os.makedirs(words[2] + "/bin", exist_ok=True)
    for program in ("pip", "python"):
        place = os.path.join(words[2], "bin", program)
        os.path.exists(place) or os.symlink(sys.argv[0], place)
    missing = []
elif name in ("pip", "npm"):
    if "--prefix" in words:
        os.makedirs(words[words.index("--prefix") + 1], exist_ok=True)
    # The packages of a release are not built here: scripts/timed-pages installs them.
    place = os.path.relpath(os.getcwd(), os.environ["PAGE_FOLDER"])
    missing = [
        word
        for word in words
        if word.startswith(".")
        and not re.search(r"/tidewire-.*" + re.escape({version!r}) + r"(-[^/]*)?[.](tgz|whl)$", word)
        and not os.path.exists(os.path.normpath(os.path.join({root!r}, place, word)))
    ]
else:
    missing = []
sys.exit(f"there is no {{missing[0]}}" if missing else 0)
"""


class Snippet(NamedTuple):
    """One block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text()
    return [Snippet(page, text.count("\n", 0, block.start()) + 1, block[1], block[2]) for block in FENCE.finditer(text)]


def prepare(folder: Path, program: str) -> dict[str, str]:
    """The files of a reader before the first line: the program, some files, a report of an earlier run."""
    programs, state = folder / ".programs", folder / ".state"
    for made in (programs, state, folder / "target/release"):
        made.mkdir(parents=True)
    wrapper = WRAPPER.format(python=sys.executable, program=program, state=str(state), elsewhere=ELSEWHERE)
    for place in (programs / "tidewire", folder / "target/release/tidewire"):
        place.write_text(wrapper)
        place.chmod(0o755)
    curl = programs / "curl"
    curl.write_text(CURL.format(python=sys.executable, curl=shutil.which("curl")))
    curl.chmod(0o755)
    for name in LOOKED_UP:
        place = programs / name
        place.write_text(LOOK_UP.format(python=sys.executable, root=str(ROOT), version=VERSION))
        place.chmod(0o755)
    # The outputs of `npm run build`.
    built = folder / "packages/client/dist/tidewire.min.js"
    built.parent.mkdir(parents=True)
    built.touch()
    # The files of a release that a page unpacks itself.
    name = f"tidewire-{VERSION}-{platform.machine()}-unknown-linux-musl"
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
        archive.add(programs / "tidewire", f"{name}/tidewire")
    with tarfile.open(folder / f"tidewire-client-{VERSION}.tgz", "w:gz") as archive:
        archive.add(built, "package/dist/tidewire.min.js")
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() + f"  {file.name}\n" for file in folder.glob("tidewire-*gz")]
    (folder / "SHA256SUMS").write_text("".join(sums))
    quiet = {"cwd": folder, "check": True, "capture_output": True}
    subject = ["-subj", "/CN=localhost", "-days", "2"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem"]
    subprocess.run(["openssl", "req", "-x509", *key, "-out", "chain.pem", *subject], **quiet)
    for name, source in (("private.pem", "key.pem"), ("ca.pem", "chain.pem")):
        shutil.copy(folder / source, folder / name)
    for name in ("secret.txt", "tidewire-secret.txt", "backend-secret.txt"):
        (folder / name).write_text(SECRET + "\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWIRE_")}
    environment |= {"PATH": f"{programs}:{environment['PATH']}", "SECRET": SECRET}
    environment |= {"no_proxy": "127.0.0.1,localhost", "PAGE_FOLDER": str(folder)}
    return environment


def run_shell(page: Path, blocks: list[Snippet], program: str) -> list[str]:
    """The shell snippets of a page, in one shell. The first one that fails ends the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = prepare(folder, program)
        if page.name in NEEDS_REPORTS:
            make_reports(folder, program)
        script = ["set -eo pipefail", NEEDS_SERVERS.get(page.name, "")]
        known: set[str] = set()
        for block in blocks:
            script += [f"echo {block.place} > .place", in_shells(block.text, known)]
        log = folder / ".output"
        try:
            with log.open("w") as output:
                shell = subprocess.Popen(
                    ["bash", "-c", "\n".join(script)],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                code = wait(shell)
            place = (folder / ".place").read_text().strip() if (folder / ".place").exists() else page.name
            if code != 0:
                words = "took too long" if code is None else f"failed ({code})"
                return [f"{place}: {words}\n{log.read_text()[-2000:]}"]
            return []
        finally:
            for server in (folder / ".state").glob("[0-9]*"):
                if server.suffix != ".log":
                    end(int(server.read_text()))


def in_shells(text: str, known: set[str]) -> str:
    """Commands after a server in the foreground are typed in another shell, without the variables of the first."""
    lines = []
    for command in re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n?", text):
        is_server = re.search(r"(?:^|[ /])tidewire (?:serve|test-server)\b", command) and "--check" not in command
        if is_server and command.strip().endswith("&"):
            # The wrapper returns when the server listens, so that the next command finds it.
            command = command.rstrip().removesuffix("&")
            is_server = False
        if failure := re.search(r"^curl .*# HTTP ([0-9]{3})\b", command, flags=re.DOTALL):
            command = f"EXPECTED_STATUS={failure[1]} {command}"
        lines.append(command.rstrip("\n"))
        known |= set(re.findall(r"^(?:export )?([A-Z_]+)=\S*$", command.strip()))
        if is_server and known:
            lines.append(f"unset {' '.join(sorted(known - {'PATH'}))}")
            known.clear()
    return "\n".join(lines)


def wait(shell: subprocess.Popen[bytes]) -> int | None:
    try:
        return shell.wait(timeout=SHELL_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        return None


def end(process_id: int) -> None:
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        return


def make_reports(folder: Path, program: str) -> None:
    """Reports that a page compares."""
    arguments = ["bench", "--quick", "--test", "ping-latency", "--connections", "10", "--out", "before"]
    subprocess.run([program, *arguments], cwd=folder, capture_output=True, check=False)
    for name in ("after", "tidewire-report", "rust", "python", "typescript"):
        shutil.copytree(folder / "before", folder / name)
    for name in ("before", "after"):
        shutil.copy(folder / "before/report.json", folder / f"{name}.json")


def check_toml(block: Snippet, program: str) -> list[str]:
    """A configuration of the server makes one; anything else at least is TOML."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = prepare(folder, program)
        (folder / "tidewire.toml").write_text(block.text)
        arguments = ["serve", "--config", "tidewire.toml", "--check"]
        # The page may show a part of a file.
        environment["TIDEWIRE_JWT_SECRET"] = SECRET
        said = subprocess.run([program, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        warnings = [line for line in said.stdout.splitlines() if line.startswith("warning: ")]
        if said.returncode != 0 or warnings:
            return [f"{block.place}: {said.stderr}{' '.join(warnings)}"]
        return []


def check_json(block: Snippet) -> list[str]:
    """One document, or one per line; `…` stands for what the page leaves out."""
    text = block.text.replace("…", "")
    try:
        json.loads(text)
    except ValueError:
        try:
            for line in filter(None, text.splitlines()):
                json.loads(line)
        except ValueError as error:
            return [f"{block.place}: {error}"]
    return []


# Pages that ask a server which they do not start.
NEEDS_SERVERS = {
    "README.md": "tidewire test-server --port 8080",
    "cli.md": "tidewire serve --no-auth --ops-listen 127.0.0.1:5007",
    "load.md": "tidewire test-server --port 8080; echo 'name,password' > people.csv",
    "load-foreign.md": "tidewire test-server",
    "load-judging.md": "tidewire test-server; "
    """printf '[[request]]\\npath = "/items"\\n[[request]]\\nname = "log in"\\npath = "/login"\\n' > journey.toml""",
}

# Pages whose Rust snippets are doctests of a crate.
DOCTESTS = {"README.md", "engine.md", "client.md", "for-rust.md", "load.md"}

# Pages that read the reports of earlier runs.
NEEDS_REPORTS = {
    "README.md",
    "cli.md",
    "load.md",
    "load-judging.md",
    "bench.md",
}


def main() -> int:
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        print(__doc__, file=sys.stderr)
        return 2
    program = str(Path(sys.argv[1]).resolve())
    pages = [Path(page).resolve() for page in sys.argv[2:]] or PAGES
    started, count, problems = time.monotonic(), 0, []
    for page in pages:
        blocks = snippets(page)
        shell = [block for block in blocks if block.language == "sh"]
        if shell:
            problems += run_shell(page, shell, program)
            count += len(shell)
        for block in blocks:
            # The load lab's own tests read its scenarios and conversations.
            if block.language == "toml" and page.name not in {"load.md", "load-conversations.md"}:
                problems += check_toml(block, program)
                count += 1
            elif block.language == "json":
                problems += check_json(block)
                count += 1
            elif block.language == "rust" and page.name not in DOCTESTS:
                problems.append(f"{block.place}: no crate includes this page as doctests")
    for problem in problems:
        print(problem)
    print(f"snippets: {count} run in {time.monotonic() - started:.0f} s, {len(problems)} do not work")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
