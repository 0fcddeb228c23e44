"""`make dist`: builds what users install, installs it as they do, and tries it.

Of palestra and palestra-web: a source distribution in `dist/`, and the wheel that is built from it.
Each is installed into a virtual environment of its own, outside of the checkout: first without
extras, where there must be no torch and everything but training must work, then with `train`, where
it trains the quickstart. Needs nothing but Python; what else it needs, it installs beside.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from urllib.request import urlopen

from tests.support.pip_install import pip_install

ROOT = Path(__file__).parents[2]
WEB = ROOT / "packages" / "palestra-web"
STEPS = ["--steps", "5"]
FEW_STEPS = ["--steps", "2", "--warm_start", "none", "--eval.tasks", "5"]
"""Of a second training, which shows no more than that it runs."""


class Failed(Exception):
    """A distribution does not do what it should."""


class Installed:
    """A virtual environment outside of the checkout, and its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        venv.create(folder / "venv", with_pip=True)
        # Nothing of the caller's Python, which may well find the checkout.
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self.bin}{os.pathsep}{kept['PATH']}"
        self.environ = kept | {"PATH": path, "VIRTUAL_ENV": str(folder / "venv")}

    def install(self, *arguments: str) -> None:
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        python = str(self.bin / "python")
        if pip_install([*constraints, *arguments], python=python, environ=self.environ):
            raise Failed(f"pip install {' '.join(arguments)}")

    def has(self, module: str) -> bool:
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
        return self._process(["python", "-I", "-c", code]).returncode == 0

    def run(self, *command: str, stdin: str = "", expect: str = "") -> str:
        """Run a command, in a folder outside of the checkout; `expect` must be in what it says."""
        print(f"  $ {' '.join(command)}", flush=True)
        done = self._process(command, stdin)
        if done.returncode or expect not in done.stdout:
            raise Failed(
                f"{' '.join(command)}: exit code {done.returncode}, expected 0 and {expect!r}\n"
                f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
            )
        return done.stdout

    def _process(self, command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )

    @contextmanager
    def running(self, *command: str) -> Iterator[None]:
        """A server, until the end of the block. Ctrl-C must end it."""
        print(f"  $ {' '.join(command)} &", flush=True)
        with (self.folder / "server.log").open("w+") as log:
            process = subprocess.Popen(
                [str(self.bin / command[0]), *command[1:]],
                cwd=self.folder,
                env=self.environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                yield
            except BaseException:
                log.seek(0)
                print(log.read()[-4000:])
                raise
            finally:
                process.terminate()
                process.wait(60)


def build(source: Path, out: Path, tools: Installed) -> tuple[Path, Path]:
    """The wheel and the source distribution of a package."""
    name = source.name.replace("-", "_") if source != ROOT else "palestra"
    for old in out.glob(f"{name}-*"):
        old.unlink()
    tools.run("python", "-m", "build", "--outdir", str(out), str(source))
    (wheel,), (sdist,) = out.glob(f"{name}-*.whl"), out.glob(f"{name}-*.tar.gz")
    tools.run("twine", "check", "--strict", str(wheel), str(sdist))
    return wheel, sdist


def check_wheel(wheel: Path) -> None:
    """The package's own data is in it, nothing else is, and its pictures have whole addresses."""
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        said: Message = message_from_bytes(opened.read(metadata))
    package = ROOT / "palestra"
    data = [*(package / "recipes").rglob("*.toml"), *(package / "view" / "page").rglob("*.*")]
    wanted = {str(path.relative_to(ROOT)) for path in data} | {"palestra/py.typed"}
    if missing := sorted(wanted - names):
        raise Failed(f"{wheel.name}: it lacks {', '.join(missing)}")
    if strangers := {name.partition("/")[0] for name in names} - {"palestra", metadata[:-9]}:
        raise Failed(f"{wheel.name}: it also has {', '.join(sorted(strangers))}")
    if not said.get_all("Classifier") or not any(
        name.endswith("licenses/LICENSE") for name in names
    ):
        raise Failed(f"{wheel.name}: no classifiers, or no license")
    text = str(said.get_payload())
    pictures = re.findall(r'!\[[^]]*\]\(([^)]+)\)|<img[^>]*\bsrc="([^"]+)"', text)
    if partial := [a or b for a, b in pictures if not (a or b).startswith("https://")]:
        raise Failed(f"{wheel.name}: pictures that only the repository has: {partial}")
    urls = said.get_all("Project-URL") or []
    print(f"  {wheel.name}: {len(names)} files, {len(urls)} URLs, {len(pictures)} pictures")
    if not urls:
        print("  (no URLs and pictures, as the git remote `origin` has no web address)")


def check_core(core: Installed) -> None:
    """What works without torch, and needs no run."""
    if found := [name for name in ("torch", "transformers") if core.has(name)]:
        raise Failed(f"a core installation has {', '.join(found)}")
    print(f"  no torch, no transformers; {_megabytes(core.folder)} MB with Python's pip")
    listed = core.run("palestra", "env", "list", expect="guess")
    if "pip install 'palestra[babyai]'" not in " ".join(listed.split()):
        raise Failed(f"env list names no extra for babyai:\n{listed}")
    core.run("palestra", "recipes", expect="quickstart")
    core.run("palestra", "env", "check", "guess", expect="ok")
    core.run("palestra", "env", "play", "guess", stdin=":expert\n:quit\n", expect="1 turns")
    address = f"127.0.0.1:{_free_port()}"
    port = address.partition(":")[2]
    with core.running("palestra", "env", "serve", "guess", "--port", port):
        _wait_for(int(port))
        core.run("palestra", "env", "check", f"http://{address}/guess", expect="ok")
    refused = core._process(["palestra", "train", "quickstart"])
    if refused.returncode != 2 or "pip install 'palestra[train]'" not in refused.stderr:
        raise Failed(f"training without torch names no extra:\n{refused.stderr}")


def check_training(trained: Installed, arguments: list[str]) -> Path:
    """Train the quickstart. Returns the run folder."""
    trained.run("palestra", "train", "quickstart", *arguments, "--out", "run", expect="held-out")
    return trained.folder / "run"


def check_run(core: Installed, run: Path) -> None:
    """`report` and `view` of a run that was trained elsewhere."""
    copy = core.folder / "run"
    shutil.copytree(run, copy, dirs_exist_ok=True)
    core.run("palestra", "report", "run", expect="report.html")
    if not (copy / "report" / "success.png").is_file():
        raise Failed("the report has no curves")
    core.run("palestra", "view", "run", "--bundle", "bundle", expect="episodes")
    address = f"127.0.0.1:{_free_port()}"
    port = address.partition(":")[2]
    with core.running("palestra", "view", "run", "--no-open", "--port", port):
        _wait_for(int(port))
        with urlopen(f"http://{address}/", timeout=60) as page:
            if b"<html" not in page.read():
                raise Failed("the viewer has no page")
        with urlopen(f"http://{address}/api/runs.json", timeout=60) as answer:
            if not json.load(answer)["runs"]:
                raise Failed("the viewer has no run")


def check_web(core: Installed, artifact: Path) -> None:
    core.install(str(artifact))
    rows = json.loads(core.run("palestra", "env", "list", "--json"))
    (web,) = (row for row in rows if row["name"] == "web")
    if web["error"] or not web["tasks"]:
        raise Failed(f"palestra-web: {web}")
    print(f"  web: {web['tasks']}")


def _wait_for(port: int) -> None:
    last = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > last:
                raise Failed(f"nothing listens at port {port}") from None
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _megabytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--only-build", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palestra-dist-") as temporary:
        place = Path(temporary)
        print("build", flush=True)
        tools = Installed(place / "tools")
        tools.install("build", "twine")
        chosen.out.mkdir(exist_ok=True)
        palestra = build(ROOT, chosen.out.resolve(), tools)
        web = build(WEB, chosen.out.resolve(), tools)
        check_wheel(palestra[0])
        if chosen.only_build:
            return
        for artifact, web_artifact, steps in zip(palestra, web, (STEPS, FEW_STEPS), strict=True):
            print(f"install {artifact.name}", flush=True)
            core = Installed(place / "core")
            core.install(str(artifact))
            check_core(core)
            print(f"install {artifact.name}[train]", flush=True)
            trained = Installed(place / "train")
            trained.install("torch")
            trained.install(f"{artifact}[train]")
            run = check_training(trained, steps)
            check_run(core, run)
            print(f"install {web_artifact.name}", flush=True)
            check_web(core, web_artifact)
            for used in (core, trained):
                shutil.rmtree(used.folder)
    print(f"all is well: {chosen.out}")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"make dist: {failure}")
