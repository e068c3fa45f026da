# The one way to do each thing; .ci/run calls the same targets.
#
#   PY         the interpreter that runs the tools (default: .venv's if `make setup` made it, else python3)
#   TESTS      what `make test` runs                        ARGS   more options for pytest
#   DIST       where `make dist` puts packages; BUILD_ARGS has more options for build, as --no-isolation
#   CORE       what the targets of adapters install as kern-sandbox (a wheel; default: this tree)
#   LANGCHAIN_VENV, LANGCHAIN_PY    where `make test-langchain` installs, and with which Python (3.11 or later)
#   LLAMAINDEX_VENV, LLAMAINDEX_PY  where `make test-llamaindex` installs, and with which Python (3.10 or later)
#   RUN_IN_VM  a command `RUN_IN_VM FOLDER COMMAND` that boots a machine, copies FOLDER to its /src, runs COMMAND there
#   VM_PY      an interpreter with the test tools in that machine

VENV ?= .venv
PY ?= $(if $(wildcard $(VENV)/bin/python),$(VENV)/bin/python,python3)
TESTS ?= tests
ARGS ?=
USER_HOME ?=
LANGCHAIN_VENV ?= $(VENV)/langchain
LANGCHAIN_PY ?= python3
LLAMAINDEX_VENV ?= $(VENV)/llamaindex
LLAMAINDEX_PY ?= python3
CORE ?= .
DIST ?= dist
BUILD_ARGS ?=
RUN_IN_VM ?= run-in-vm
VM_PY ?= python3
DOT ?= dot
VERSION_TESTS = tests/house/test_public_api.py \
  $(patsubst %,tests/unit/test_%.py,archives cli_arguments cli_completion forksafe forkserver_imports guest_finder \
    guest_run_once guest_show profiles rpc_ends values wire workspace) \
  $(patsubst %,tests/box/test_%.py,image_pythons kernel kernel_branches warm) \
  $(patsubst %,tests/box/test_calls.py::test_%,asyncio_run_and_multiprocessing_work_in_a_snippet \
    a_deadline_of_asyncio_ends_the_box a_spawned_program_is_talked_to_while_it_runs the_async_verbs_do_what_the_others_do) \
  $(patsubst %,tests/box/test_cli.py::test_%,json_is_strict_complete_and_alone options_reach_the_box \
    output_is_live what_is_piped_in_is_what_the_code_reads) \
  $(patsubst %,tests/box/test_mcp.py::test_%,a_handshake_ends_with_a_revision_that_is_served an_image_is_image_content \
    tools_are_listed_with_schemas_and_hints what_goes_wrong_in_a_tool_is_a_result_and_not_an_error_of_the_protocol)
NOBODY = setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all

.PHONY: setup check lint types house format dist dist-npm test test-user test-version test-langchain test-llamaindex docs graph reference site evals bench vm-test clean

setup:  ## a virtual environment with this package, editable, and the tools
	python3 -m venv $(VENV)
	$(VENV)/bin/python -m pip install -e '.[dev]'

check: lint types house  ## what every change has to pass before its tests

lint:  ## ruff's rules and layout
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types:  ## mypy, strict
	$(PY) -m mypy

house:  ## floors, budgets, public surface
	$(PY) -m pytest -q tests/house $(ARGS)

format:  ## put the layout right
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .

dist: dist-npm  ## every package, into DIST: sdists, wheels, and npm's tarballs
	for package in . integrations/langchain integrations/llamaindex; do \
	  $(PY) -m build $(BUILD_ARGS) --outdir "$(DIST)" $$package || exit; done
	$(PY) -m twine check --strict "$(DIST)"/*.tar.gz "$(DIST)"/*.whl

dist-npm:  ## npm's tarballs; npm keeps what a umask did to a clone, so it gets a copy that is readable to all
	@mkdir -p "$(DIST)" && copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && for package in node pi; do \
	  cp -R integrations/$$package "$$copy" && chmod -R u=rwX,go=rX "$$copy/$$package" && \
	  TMPDIR="$$copy" npm pack --cache "$$copy/cache" --pack-destination "$(DIST)" "$$copy/$$package" || exit; done

test:  ## every test, as whoever you are
	$(PY) -m pytest $(TESTS) $(ARGS)

test-user:  ## as root: every test as an unprivileged user, in a home of its own (USER_HOME: one that is kept)
	@home="$(USER_HOME)"; [ -n "$$home" ] || { home=$$(mktemp -d); trap 'rm -rf "$$home"' EXIT; }; \
	mkdir -p "$$home/tmp" && chown 65534:65534 "$$home" "$$home/tmp" && \
	$(NOBODY) env -i PATH="$$PATH" HOME="$$home" TMPDIR="$$home/tmp" LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 \
	  $(foreach name,CI KERN_DIST KERN_MUST_WORK KERN_EXPECT_INSTALLED PYTHONPATH,$(if $($(name)),$(name)="$($(name))")) \
	  $(MAKE) --no-print-directory -C "$(CURDIR)" test PY="$(PY)" TESTS="$(TESTS)" ARGS="-p no:cacheprovider $(ARGS)"

test-version:  ## the tests that feel PY's version the most: guest code, templates, kernels, faces
	$(PY) -m pytest $(VERSION_TESTS) $(ARGS)

test-langchain:  ## the adapter for LangChain, LangGraph and deepagents, built and installed
	$(LANGCHAIN_PY) -m venv $(LANGCHAIN_VENV)
	$(LANGCHAIN_VENV)/bin/python -m pip install -q --no-compile --upgrade 'pip>=25.1'
	$(LANGCHAIN_VENV)/bin/python -m pip install -q --no-compile $(CORE) './integrations/langchain[deepagents]' --group integrations/langchain/pyproject.toml:test
	$(LANGCHAIN_VENV)/bin/python -m pip install -q --no-compile --no-deps 'deepagents-code==0.1.57'  # alone: it pins all it stands on
	cd integrations/langchain && $(abspath $(LANGCHAIN_VENV))/bin/pytest -n 3 --dist loadscope $(ARGS)

test-llamaindex:  ## the adapter for LlamaIndex, built and installed beside another package of its namespace
	$(LLAMAINDEX_PY) -m venv $(LLAMAINDEX_VENV)
	$(LLAMAINDEX_VENV)/bin/python -m pip install -q --no-compile --upgrade 'pip>=25.1'
	$(LLAMAINDEX_VENV)/bin/python -m pip install -q --no-compile $(CORE) ./integrations/llamaindex --group integrations/llamaindex/pyproject.toml:dev
	$(LLAMAINDEX_VENV)/bin/python -m pytest -c integrations/llamaindex/pyproject.toml integrations/llamaindex/tests $(ARGS)

docs:  ## run every snippet of the README and the documentation
	$(PY) -m pytest tests/docs $(ARGS)

graph:  ## draw the package's import graph, docs/imports.svg (needs dot, of Graphviz; DOT names another program)
	$(PY) scripts/import_graph.py | $(DOT) -Tsvg > docs/imports.svg

reference:  ## write the pages that are made from the source: the Python API, the system calls
	PYTHONPATH=src $(PY) scripts/make_reference.py --write

site:  ## the documentation as a static site, into build/site; fails on a dead link (needs the extra docs)
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet --fresh-env --conf-dir docs --doctree-dir build/doctrees . build/site

evals:  ## attack boxes and run honest code in them, with a page (ARGS: options of kern-sandbox eval)
	PYTHONPATH=src $(PY) -m kern_sandbox eval --jobs 2 --html evals.html $(ARGS)

bench:  ## measure, and bring BENCHMARKS.md, its chart and its JSON up to date (with ARGS: what they say instead)
	$(PY) -m benchmarks $(or $(ARGS),--write)

vm-test:  ## every test in a virtual machine, as its unprivileged user under a systemd session
	$(RUN_IN_VM) . 'cd /src && KERN_MUST_WORK=1 PYTHONPATH=/src/src $(VM_PY) -m pytest $(TESTS) $(ARGS)'

clean:  ## remove what the other targets make
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -not -path './$(VENV)/*' -exec rm -rf {} +
