# `make demo` and `make test` each need Python 3.11+ and make, nothing else: `setup` does the rest, once.

# python3 where it is new enough, else the newest one beside it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Three test processes, each with a server of its own: a test waits for more than half of its time. Files are run in
# the order of tests/file_order.py.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: demo test test-long test-fast setup dev check docs bench bench-comeback bench-large bench-sets bench-planning compare fuzz fuzz-minute soak \
	soak-approvals soak-minute support-desk support-desk-kill walkthroughs support-desk-nightly mcp-servers clients alerts live-smoke mutants clean help

# Of `make soak` and `make fuzz`
SECONDS ?= 60
SEED ?= 1

demo: setup ## run a plan from start to finish on a local server
	$(BIN)/acts demo

test: setup ## run the tests, but for the long ones
	$(BIN)/python -m pytest -m "not long" $(PYTEST_ARGS)

test-long: setup ## the tests that kill, or walk what is large, for four seconds and more: five minutes
	$(BIN)/python -m pytest -m long $(PYTEST_ARGS)

# Of each property that has many; `make test` tries more
test-fast: export TEST_EXAMPLES = 10
test-fast: setup ## the tests without a server: a minute
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not server" tests/unit tests/property tests/replay

setup: $(STAMP) ## create .venv with the pinned dependencies

dev: setup ## start server, Web UI and worker, with state kept in .acts/
	$(BIN)/acts dev

support-desk: setup ## run the application of examples/support_desk: database, payment service, engine, three cases
	$(BIN)/python -m examples.support_desk

walkthroughs: setup ## follow the pages of the docs, command by command
	$(BIN)/python -m pytest -p no:xdist tests/cli/test_walkthroughs.py

support-desk-kill: export TEST_SUPPORT_DESK = 1
support-desk-kill: setup ## kill each program of the support desk, then all of them, and check what was paid
	$(BIN)/python -m pytest -p no:xdist tests/examples/test_support_desk.py

support-desk-nightly: export ACTS_STATE = .support_desk/engine
support-desk-nightly: ## beside it: compare its 10,000 orders with the ledger of the payment service, as every night
	$(BIN)/acts run export
	$(BIN)/acts run nightly --watch

check: setup docs ## lint, format, types, dead links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup ## build the documentation as a site that needs no network, site/index.html; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: setup ## print figures
	$(BIN)/python -m benchmarks

bench-comeback: setup ## 50 runs with 15,000 events each wait, all workers die, one comes back (half an hour)
	$(BIN)/python -m benchmarks.comeback

bench-large: setup ## 20,000 instances, a small plan beside them, and a backlog behind five slots (20 minutes)
	$(BIN)/python -m benchmarks.large

bench-sets: setup ## 10,000 and 100,000 rows of a file, three calls each, the worker killed ten times (an hour)
	$(BIN)/python -m benchmarks.sets

bench-planning: setup ## score how well models plan: recorded answers, and models that have a key (costs a few cents)
	$(BIN)/python -m benchmarks.planning

compare: setup ## the same tasks in acts and in six alternatives, then docs/comparison.md (needs PostgreSQL; ten minutes and more)
	$(BIN)/python -m benchmarks.compare

soak: setup ## kill workers and the server, and reset runs, for SECONDS (60), by SEED (1); then check that all is right
	$(BIN)/python -m tests.crash.soak --seconds $(SECONDS) --seed $(SEED)

soak-approvals: export TEST_APPROVED_RUNS = 100
soak-approvals: export TEST_SEED = $(SEED)
soak-approvals: setup ## a hundred runs in which people decide and others interfere, by SEED (1)
	$(BIN)/python -m pytest tests/security/test_approved_runs.py

soak-minute: setup ## half a minute of kills with a fixed seed, and the time until all has ended
	$(BIN)/python -m tests.crash.soak --seconds 30 --seed 1

fuzz: setup ## hostile inputs against everything that reads input; SECONDS=60 SEED=n
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

fuzz-minute: setup ## the first 500 hostile inputs, always the same: about a minute
	$(BIN)/python -m tests.fuzz --cases 500 --seed 1

mutants: setup ## change 100 places of the four files that decide most, one at a time: which test fails? (half an hour)
	$(BIN)/python -m tests.mutants

# The SDK's reference servers, from PyPI and npm (needs Node.js), in a folder of their own: none is a dependency
MCP_SERVERS ?= .mcp-servers

mcp-servers: setup ## install MCP reference servers into .mcp-servers/, and run plans with their tools
	@test -x $(MCP_SERVERS)/venv/bin/python || "$(PYTHON)" -m venv $(MCP_SERVERS)/venv
	@$(MCP_SERVERS)/venv/bin/python -m pip install --quiet --disable-pip-version-check \
		mcp-server-time mcp-server-git
	@npm install --silent --no-fund --no-audit --prefix $(MCP_SERVERS) @modelcontextprotocol/server-everything \
		@modelcontextprotocol/server-filesystem @modelcontextprotocol/server-memory
	TEST_MCP_SERVERS=$(MCP_SERVERS) $(BIN)/python -m pytest tests/mcp/test_reference_servers.py -p no:xdist

# Node.js from your system; Go, too. What is missing is left out, and its test is skipped
clients: setup ## build the clients of examples/clients in TypeScript and Go, and run them against a server
	@! command -v npm >/dev/null || (cd examples/clients/typescript && npm install --silent --no-fund --no-audit && npx tsc)
	@! command -v go >/dev/null || (cd examples/clients/go && go get go.temporal.io/sdk@latest \
		go.temporal.io/sdk/contrib/envconfig@latest && go mod tidy && go build -o bin/ ./client ./worker)
	$(BIN)/python -m pytest tests/examples/test_clients.py -p no:xdist -rs

alerts: setup ## make outages, and wait until Prometheus has fired the alert of each (needs prometheus; ten minutes)
	$(BIN)/python -m benchmarks.alerts

live-smoke: setup ## ask each model provider that has a key; writes live-DATE.md, with transcripts (costs a few cents)
	$(BIN)/python -m benchmarks.live_smoke

clean: ## remove .venv and caches; the state in .acts/ stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

# Done again only when what is to be installed has changed.
$(STAMP): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "This needs Python 3.11 or newer, found $(or $(PYTHON),none); name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Installing into $(VENV); once, it takes a minute or two."
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)
