# `make run` and `make test` need only Python (3.11 or newer), pip and make.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python

.PHONY: run test test-thorough test-optimized test-all test-robustness lint lock bench compile-tpu compile-gpu site notebooks validate-launch board sweep-kills clean

run: $(VENV)/.ready
	$(PY) train.py --config=configs/rope_extrap.py

TESTS := JAX_COMPILATION_CACHE_DIR="$(CURDIR)/$(VENV)/compiled" $(PY) -m pytest -n 2 --dist loadscope --no-loadscope-reorder

test: $(VENV)/.ready-dev  ## each thing once; 12 minutes on two cores of an AMD EPYC (Zen 3) if nothing is compiled yet
	$(TESTS) -m "not thorough"

test-thorough: $(VENV)/.ready-dev  ## the rest: more methods and sizes, whole experiments; an hour
	$(TESTS) -m thorough --ignore=tests/robustness

test-optimized: $(VENV)/.ready-dev  ## attention and training as users compile them, and 25 shapes for each method; 20 minutes
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(TESTS) -m "not thorough" tests/attention tests/lab/training tests/backends
	$(TESTS) --hypothesis-profile=thorough tests/encodings/test_catalogue_shapes.py

test-robustness: $(VENV)/.ready-dev  ## ends and damages runs in every way they must survive; half an hour
	$(TESTS) tests/robustness

test-all: test test-thorough test-optimized test-robustness

lint: $(VENV)/.ready-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright

$(VENV)/.ready: requirements.txt
	@echo "installs the packages of requirements.txt into $(VENV); a few minutes, once"
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet -r requirements.txt
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements-dev.txt
	@echo "installs the packages of requirements-dev.txt into $(VENV); a minute, once"
	$(PY) -m pip install --quiet -r requirements-dev.txt
	touch $@

lock: $(VENV)/.ready  ## resolves the two lock files again, for every platform and Python at once
	$(PY) -m pip install --quiet uv
	$(PY) -m uv pip compile --universal --python-version 3.11 --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --extra lab pyproject.toml -o requirements.txt
	$(PY) -m uv pip compile --universal --python-version 3.11 --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt

bench: $(VENV)/.ready  ## needs about a gigabyte: PyTorch and x-transformers
	$(PY) -m pip install --quiet '.[bench]'
	$(PY) scripts/bench.py
	$(PY) scripts/speed_page.py

compile-tpu: $(VENV)-tpu/.ready  ## what the compiler of a TPU says of our programs, without a TPU; hours
	$(VENV)-tpu/bin/python scripts/compile_for.py v5e $(if $(ONLY),--only='$(ONLY)')

compile-gpu: $(VENV)-gpu/.ready  ## the same of a GPU; CUDA's packages take 5 GB
	$(VENV)-gpu/bin/python scripts/compile_for.py h100 $(if $(ONLY),--only='$(ONLY)')

$(VENV)-tpu/.ready: requirements.txt
	$(PYTHON) -m venv $(VENV)-tpu
	$(VENV)-tpu/bin/python -m pip install --quiet -r requirements.txt 'jax[tpu]'
	touch $@

$(VENV)-gpu/.ready: requirements.txt
	$(PYTHON) -m venv $(VENV)-gpu
	$(VENV)-gpu/bin/python -m pip install --quiet -r requirements.txt 'jax[cuda12]'
	touch $@

validate-launch: $(VENV)/.ready-dev  ## SkyPilot and W&B's sweep checker, each in its own environment: 1 GB
	$(PYTHON) -m venv $(VENV)-sky && $(VENV)-sky/bin/pip install --quiet 'skypilot[gcp]'
	$(PYTHON) -m venv $(VENV)-sweeps && $(VENV)-sweeps/bin/pip install --quiet 'wandb[sweeps]'
	$(PY) -m tests.validate_launch $(VENV)-sky/bin $(VENV)-sweeps/bin/python

site: $(VENV)/.ready-dev  ## build/site, with warnings as errors
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build

notebooks: $(VENV)/.ready-dev  ## examples/*.ipynb, run, from their sources
	$(PY) -m pip install --quiet '.[notebooks]'
	PYTHONPATH=$(CURDIR) JAX_PLATFORMS=cpu $(PY) -m jupytext --to ipynb --set-kernel python3 --execute $$(grep -l '^# %%' examples/*.py)

board: $(VENV)/.ready  ## the runs that docs/leaderboard does not have yet, then its page; hours
	$(PY) scripts/board.py

sweep-kills: $(VENV)/.ready  ## a sweep of 12 points x 3 seeds, killed four times and started again
	$(PY) -m tests.sweep_kills

clean:
	rm -rf $(VENV) $(VENV)-tpu $(VENV)-gpu $(VENV)-sky $(VENV)-sweeps build *.egg-info
