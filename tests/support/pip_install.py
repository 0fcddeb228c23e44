"""`python -m tests.support.pip_install ARGUMENTS`: `pip install` with its progress on one line.

pip itself prints either hundreds of lines or nothing. In a terminal the line stays in place;
elsewhere there is a line for each large download, and one at the end. Needs nothing but Python.
"""

import re
import shutil
import subprocess
import sys

LARGE_MB = 20
STEP = re.compile(
    r"\s*(?P<verb>Collecting|Downloading|Using cached|Building|Preparing|Installing)"
    r"(?P<what>[^(]*)(?:\((?P<size>[\d.]+) (?P<unit>[kMG])B\))?"
)
MB = {"k": 1e-3, "M": 1.0, "G": 1e3}


def step_of(line: str) -> tuple[str, float] | None:
    """What pip is doing, and the megabytes that it downloads for it. None: not worth a line."""
    found = STEP.match(line)
    if found is None:
        return None
    what = found["what"].strip().rpartition("/")[2]
    if found["verb"] == "Installing" and "," in what:
        what = f"{what.count(',') + 1} packages"
    said = f"{found['verb'].lower()} {what}"
    size = float(found["size"]) * MB[found["unit"]] if found["size"] else 0.0
    is_download = found["verb"] == "Downloading"
    return (f"{said} ({size:.0f} MB)" if size >= 1 else said), size if is_download else 0.0


def pip_install(
    arguments: list[str], *, python: str = sys.executable, environ: dict[str, str] | None = None
) -> int:
    """The exit code. pip's errors and warnings go to stderr, as always."""
    command = [python, "-u", "-m", "pip", "--disable-pip-version-check", "install"]
    command += ["--progress-bar", "off", *arguments]
    pip = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert pip.stdout is not None
    in_place = sys.stdout.isatty()
    installed = 0
    for line in pip.stdout:
        if line.startswith("Successfully installed"):
            installed = len(line.split()) - 2
        step = step_of(line)
        if step is None:
            continue
        said, megabytes = step
        if in_place:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{f'pip: {said}'[:width]}", end="", flush=True)
        elif megabytes >= LARGE_MB:
            print(f"pip: {said}", flush=True)
    code = pip.wait()
    if code == 0:
        erase = "\r\x1b[K" if in_place else ""
        print(f"{erase}pip: {installed} packages installed", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(pip_install(sys.argv[1:]))
