# Three commands do it all: `make demo` shows a run, `make test-core` checks what decides, `make test` everything.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.installed-demo
# More than most machines of CI have processors: a test that starts processes waits most of its time.
WORKERS ?= 5
# For tests that compute, or train: one more than there are processors.
BUSY ?= 3
# Who has run out of tests takes those that another one has not begun: the longest are not the first.
SPREAD := --dist worksteal -n
# For tests that mostly wait: for a lease, an engine, a scheduler's next look.
WAITING ?= 4
SCHEDULES ?= 200000
REPLICA_SCHEDULES ?= 150000
SHARE := not browser and not faults and not frameworks and not fuzz and not page and not planted and not schedulers and not wheel and not nightly
# Where the tests of each other share are; tests/test_shares.py holds them to it.
FAULTS := tests/causes tests/faults tests/features/hang tests/path tests/rdzv tests/attack
SCHEDULERS := tests/azureml tests/docker tests/kubernetes tests/prometheus tests/slurm tests/ssh tests/vessl
FRAMEWORKS := tests/examples tests/features/hang/ranks tests/frameworks tests/gpu tests/path tests/torchrun tests/worker/warm
FUZZ := tests/attack
BROWSER := tests/ui tests/features
PLANTED := tests/features/hang tests/simulation
# What repeats itself at night, and what is more then than its machine can carry beside anything else.
NIGHT := nightly or browser or faults or frameworks or fuzz or page
ALONE := tests/faults/test_replicas.py
EVERYDAY := $(SPREAD) $(WORKERS) -m "$(SHARE)"
# Nothing is compiled at installation, which takes as long as the rest of it: the first import keeps it.
PINNED := --constraint $(abspath constraints.txt)
PIP_INSTALL := -m pip install --quiet --no-compile $(PINNED)
# By uv, in a fifth of pip's time: the python of an environment, and what to install there.
UV_INSTALL := $(BIN)/python -m tests.support.venvs
export PYTHONDONTWRITEBYTECODE :=
# ONCE_MORE=FILE runs a failed real-time test once more, alone: tests/once_more.py.
PYTEST := -m $(if $(ONCE_MORE),tests.once_more $(abspath $(ONCE_MORE)),pytest)

.PHONY: demo demo-restart demo-hang test-core test-rooms test coverage test-ui test-planted test-faults test-schedulers test-frameworks test-torch test-gpu wheels-gpu test-pythons fuzz nightly simulate bench plot mutate check format openapi reference wheel test-wheel release-check constraints clean

$(DEMO_INSTALLED): pyproject.toml constraints.txt
	@echo "1/3 Creating a virtual environment in $(VENV) (about 5 s)"
	@$(PYTHON) -m venv $(VENV)
	@echo "2/3 Installing rdzv (about 15 s)"
	@$(BIN)/python $(PIP_INSTALL) --editable '.[launcher]'
	@echo "3/3 Installing PyTorch and scikit-learn for the demo (about 1 minute; CUDA builds: several)"
	@$(BIN)/python $(PIP_INSTALL) --editable '.[launcher,demo]'
	@touch $@

$(INSTALLED): $(DEMO_INSTALLED)
	$(BIN)/python $(PIP_INSTALL) 'uv>=0.5'
	$(UV_INSTALL) $(BIN)/python $(PINNED) --editable '.[demo,test-all]'
	touch $@

## Train a small model on 4 nodes of this machine: about 20 s, the first time 40 s (torch is compiled).
## With UI=1 also print a link that shows it in a browser, until you press Enter.
demo: $(DEMO_INSTALLED)
	@echo "Training a small model on 4 nodes of this machine (about 20 s, the first time 40 s)"
ifdef UI
	@PATH="$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python examples/demo_ui.py
else
	@state=$$(mktemp -d) && PATH="$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/rdzv launch --state-dir $$state \
	  --rdzv-id demo --nnodes 4 --nproc-per-node 2,1,1,1 -- examples/digits.py; \
	  code=$$?; if [ $$code -eq 0 ]; then rm -r $$state; fi; exit $$code
endif
	@echo "Two things to try next:"
	@echo "  $(VENV)/bin/rdzv launch --nnodes 2 -- YOUR_SCRIPT.py    your own script, on two nodes"
	@echo "  $(VENV)/bin/rdzv doctor                                 what a run would find here"

## Train while the registry, a process and a node are killed, and get the same loss: about 35 s, after `make demo`.
demo-restart: $(DEMO_INSTALLED)
	@echo "Training on 4 nodes of this machine, twice (about 35 s, the first time 55 s)"
	@PATH="$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python examples/demo_restart.py
	@echo "Your own script: examples/resume.py shows what it has to save, docs/elastic.md what rdzv does"

## Train while a process hangs; it is named, looked at, and all start again: about 35 s, after `make demo`.
demo-hang: $(DEMO_INSTALLED)
	@echo "Training on 4 nodes of this machine while a process hangs (about 35 s)"
	@PATH="$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python examples/demo_hang.py
	@echo "Of your own run: rdzv look RUN; docs/look.md says what is looked at"

# Of its own: what the core's tests need, and nothing else.
CORE := build/venvs/core
CORE_INSTALLED := $(CORE)/.installed
$(CORE_INSTALLED): pyproject.toml constraints.txt
	@echo "Installing what the core's tests need in $(CORE) (about 20 s)"
	@$(PYTHON) -m venv $(CORE)
	@$(CORE)/bin/python $(PIP_INSTALL) --editable '.[test]'
	@touch $@

## The core's tests: at most 30 s on two processors, without torch, a database or a browser. Which
## they are: tests/core.py.
test-core: $(CORE_INSTALLED)
	$(CORE)/bin/python -m tests.core -n 2 $(PYTEST_ARGS)

## Remove each feature from a copy: what else there is works on. ROOMS="metrics machines": these alone.
test-rooms: $(CORE_INSTALLED)
	$(CORE)/bin/python -m tests.rooms $(ROOMS)

## The everyday suite; of each property it tries a third of the examples. COUNTED=1, as in CI: and is
## what decides covered by its own tests?
test: $(INSTALLED)
	RDZV_EXAMPLES=few $(BIN)/python $(PYTEST) $(EVERYDAY) $(if $(COUNTED),-p tests.pure_coverage) $(PYTEST_ARGS)

## The everyday suite, and which of all lines and branches its own process runs.
coverage: $(INSTALLED)
	$(BIN)/python $(PYTEST) $(EVERYDAY) --cov=rendezvous --cov=worker --cov=launcher --cov=features \
	  --cov-report=term:skip-covered --cov-fail-under=0 $(PYTEST_ARGS)

## Launches on the oldest Python, with the oldest packages, and on the newest; on the oldest a tenth of the
## tests of what decides.
test-pythons: $(INSTALLED)
	WORKERS=$(WORKERS) $(BIN)/python -m tests.pythons 3.10 3.13

## The page of `rdzv ui` as it is served, and in Debian's Chromium, driven by Playwright, which fetches
## no browser of its own.
test-ui: $(INSTALLED)
	$(BIN)/python $(PYTEST) $(SPREAD) $(BUSY) -m "browser and not nightly or page and not nightly" $(BROWSER) $(PYTEST_ARGS)

## A ninth of the planted bugs, and none of the ten that take longest; the everyday suite tries a few. They
## read no clock: a time-out is for what never ends, and no slow machine meets it.
test-planted: $(INSTALLED)
	$(BIN)/python $(PYTEST) $(SPREAD) $(BUSY) --timeout 600 -m "planted and not nightly" $(PLANTED) $(PYTEST_ARGS)

## Real faults in real processes.
test-faults: $(INSTALLED)
	$(BIN)/python $(PYTEST) -n $(WAITING) -m "faults and not nightly" $(FAULTS) $(PYTEST_ARGS)

## Real schedulers: a Docker engine, Slurm, sshd, the vendors' own tools; and Prometheus.
test-schedulers: $(INSTALLED)
	$(BIN)/python $(PYTEST) -n $(WAITING) --dist loadgroup -m "schedulers and not nightly" \
	  $(SCHEDULERS) $(PYTEST_ARGS)

## Real jobs of every framework, over emulated hosts; RDZV_FRAMEWORKS=all adds what takes minutes to
## install. The environments are kept in build/venvs.
test-frameworks: $(INSTALLED)
	$(BIN)/python -m tests.frameworks.environments
	$(BIN)/python $(PYTEST) $(SPREAD) $(BUSY) -m "frameworks and not nightly" $(FRAMEWORKS) $(PYTEST_ARGS)

## PyTorch's own tests of its elastic agent, of the installed version, with rdzv's rendezvous: about 6
## minutes. Its files are fetched; TORCH_TESTS=FOLDER names a checkout instead. BODIES are parts of names.
BODIES ?=
test-torch: $(INSTALLED)
	$(BIN)/python $(PIP_INSTALL) 'expecttest>=0.3'
	$(BIN)/python -m tests.torchrun.judge $(BODIES)

## What rdzv does on this machine's GPU, by the torch of PYTHON: at most 8 minutes, no network, and 77
## where there is no GPU, which is no pass. See docs/internals/maintaining.md.
test-gpu:
	$(PYTHON) -m tests.gpu $(GPU_ARGS)

## The wheels of rdzv and of what it needs, for a machine with a GPU and no network: build/wheels.
GPU_PYTHONS ?= 3.10 3.11 3.12 3.13
GPU_GLIBC := $(foreach version,2_28 2_17,--platform manylinux_$(version)_x86_64) --platform manylinux2014_x86_64
wheels-gpu: $(INSTALLED)
	rm -rf build/wheels && mkdir -p build/wheels
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheels .
	sed -e '1,/^# Resolved/d' -e '/^asyncpg/d' constraints.txt > build/wheels/requirements.txt
	for version in $(GPU_PYTHONS); do \
	  $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	    --implementation cp --python-version $$version $(GPU_GLIBC) --dest build/wheels \
	    --requirement build/wheels/requirements.txt 'nvidia-ml-py>=12.535' pip || exit; done
	@du -sh build/wheels

## Generated attacks: requests, floods, and every parser under atheris (FUZZ_SEED=0 for other inputs).
FUZZ_SECONDS ?= 10
FUZZ_SEED ?= 1
FUZZ_INSTALLED := $(VENV)/.installed-fuzz
$(FUZZ_INSTALLED): $(INSTALLED)
	$(UV_INSTALL) $(BIN)/python $(PINNED) --editable '.[test-all,fuzz]'
	touch $@

fuzz: $(FUZZ_INSTALLED)
	RDZV_EXAMPLES=few $(BIN)/python $(PYTEST) -n $(BUSY) -m "fuzz and not nightly" $(FUZZ) $(PYTEST_ARGS)
	$(BIN)/python -m tests.attack.fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --jobs $(BUSY)

## What is too long for each push: repetitions, long waits, everything that takes minutes to build.
ROUNDS ?= 20
nightly: $(FUZZ_INSTALLED)
	RDZV_FRAMEWORKS=all $(BIN)/python -m tests.frameworks.environments
	RDZV_FRAMEWORKS=all RDZV_ROUNDS=$(ROUNDS) $(BIN)/python $(PYTEST) -n $(BUSY) --dist loadgroup \
	  -m "$(NIGHT)" --ignore $(ALONE) $(PYTEST_ARGS)
	RDZV_ROUNDS=$(ROUNDS) $(BIN)/python $(PYTEST) -m "$(NIGHT)" $(ALONE) $(PYTEST_ARGS)
	$(MAKE) coverage
	WORKERS=$(BUSY) $(BIN)/python -m tests.pythons --all 3.10 3.12 3.13
	$(MAKE) test-wheel WHEEL=tests EXTRAS=demo,test-all
	$(MAKE) test-wheel WHEEL=tests/path/test_bench.py EXTRAS=demo,test-all SHARE=frameworks
	$(BIN)/python -m tests.attack.fuzz --seconds 120 --jobs $(BUSY)
	$(BIN)/python -m tests.simulation --schedules $(SCHEDULES) --jobs $(BUSY)
	$(BIN)/python -m tests.simulation.replicas --schedules $(REPLICA_SCHEDULES) --jobs $(BUSY)
	$(MAKE) bench BENCH=quick

## Many simulated schedules, after those of the last time; what fails is shortened and left in build/simulate.
simulate: $(INSTALLED)
	$(BIN)/python -m tests.simulation --schedules $(SCHEDULES) --jobs $(BUSY)
	$(BIN)/python -m tests.simulation.replicas --schedules $(REPLICA_SCHEDULES) --jobs $(BUSY)

## Speed beside the peers (BENCH=quick for a look), then the README's picture of it.
BENCH_INSTALLED := $(VENV)/.installed-bench
$(BENCH_INSTALLED): $(INSTALLED)
	$(UV_INSTALL) $(BIN)/python $(PINNED) --editable '.[launcher,bench]'
	touch $@

bench: $(BENCH_INSTALLED)
	$(BIN)/python -m bench

plot: $(BENCH_INSTALLED)
	$(BIN)/python -m bench.plot

## Change the core and the machines in small ways, one at a time: does a test notice? All of it takes
## hours, MUTANTS='*7' a tenth of that. See docs/internals/maintaining.md.
MUTANTS ?=
mutate: $(INSTALLED)
	$(UV_INSTALL) $(BIN)/python $(PINNED) --editable '.[test-all,mutate]'
	PATH="$(BIN):$$PATH" mutmut run --max-children $(BUSY) $(if $(MUTANTS),'*__mutmut_$(MUTANTS)')
	$(BIN)/python -m tests.mutation $(if $(MUTANTS),--sample)

## Lint (with the security rules), format, types, import contracts, and how much there may be (budget.toml).
check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_budget.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## Write docs/openapi.json anew.
openapi: $(INSTALLED)
	$(BIN)/python -m tests.rendezvous.test_openapi > docs/openapi.json

## Write the lists of docs/ again: options, exit codes, each framework's variables; and what tests compare
## whole, since a person or another program reads it: tests/**/*.txt. Each is written by the module of its tests.
reference: $(INSTALLED)
	for test in $$(grep -rl --include='test_*.py' '# make reference$$' tests | sort); do \
	  echo $$test && $(BIN)/python -m $$(echo $${test%.py} | tr / .) || exit; done

## The sdist, and the wheel from it: the same bytes wherever and whenever a commit is built, by the hatchling of
## constraints.txt. The time in them is that of hatchling, or SOURCE_DATE_EPOCH.
wheel: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m tests.support.venvs --build $(abspath constraints.txt) --out-dir dist .

## What may differ in the built wheel (its command, its data), in an environment and a
## folder without the sources; then ways to install it. WHEEL=tests EXTRAS=demo,test-all for the whole everyday suite.
## A .pth file lets the tests import what is the wheel's own.
WHEEL ?= tests/launcher/test_rdzv_command.py tests/schedulers/test_own_profile.py
EXTRAS ?= test-all
test-wheel: wheel
	rm -rf build/wheel && mkdir -p build/wheel
	$(PYTHON) -m venv --without-pip build/wheel/venv
	$(UV_INSTALL) build/wheel/venv/bin/python $(PINNED) "$$(echo dist/*.whl)[$(EXTRAS)]"
	site=$$(build/wheel/venv/bin/python -I -c 'import rdzv; print(rdzv.__path__[0])') && \
	  echo "$$site/_app" > "$$site/../rdzv-tests.pth"
	cp -r tests bench examples docs README.md CHANGELOG.md SECURITY.md Makefile pyproject.toml \
	  constraints.txt build/wheel/
	cd build/wheel && venv/bin/python $(PYTEST) -n $(WORKERS) -m "$(SHARE) and not netns" $(WHEEL) $(PYTEST_ARGS)
	$(BIN)/python $(PYTEST) -n $(WORKERS) -m "wheel and not nightly" tests/wheel $(PYTEST_ARGS)

## Check the sdist and the wheel, and start a run with the wheel alone.
RELEASE_INSTALLED := $(VENV)/.installed-release
$(RELEASE_INSTALLED): $(INSTALLED)
	$(UV_INSTALL) $(BIN)/python $(PINNED) --editable '.[launcher,release]'
	touch $@

release-check: $(RELEASE_INSTALLED) wheel
	rm -rf build/release
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/release
	$(UV_INSTALL) build/release/bin/python $(PINNED) "$$(echo dist/*.whl)[launcher]"
	cd build/release && bin/rdzv launch --state-dir state --nnodes 2 --framework command -- \
	  printenv NODE_RANK

## Resolve the runtime packages again; PYTHON is the oldest that rdzv supports: its versions run on all.
constraints: PYTHON = python3.10
constraints:
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet --no-compile '.[launcher,postgres]'
	sed -i '/^# Resolved/q' constraints.txt
	build/constraints/bin/python -m pip freeze --exclude rdzv >> constraints.txt

clean:
	rm -rf $(VENV) build dist mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis
