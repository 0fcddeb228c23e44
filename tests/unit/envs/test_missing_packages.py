"""What is said where the package of an extra is not installed."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("package", "code", "said"),
    [
        ("gymnasium", "import palestra; palestra.make('guess')", "palestra[gymnasium]"),
        ("minigrid", "from palestra.envs import envs; envs['babyai']", "palestra[babyai]"),
    ],
)
def test_a_missing_package_names_its_extra(package, code, said):
    missing = f"import sys; sys.modules[{package!r}] = None; {code}"
    command = [sys.executable, "-c", missing]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert said in ended.stderr.splitlines()[-1]


def test_the_contract_is_checked_without_gymnasium():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from palestra.envs.check import check_environment\n"
        "print(check_environment('guess', tasks=2)[-1])"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "not checked: pip install 'palestra[gymnasium]'" in ended.stdout
