# make demo    train on real digits from Python and Julia, compare, draw (output/)
# make examples  differential equations and a GAN, pictures in output/
# make test    the tests, Python and Julia, on all cores; JULIA=required makes a missing
#              Julia a failure,
#              PADDLE_CHAINRULES_PROGRAMS=off and PROGRAMS=1 have no net, and every net, run
#              as a program; PADDLE_CHAINRULES_LOOPS=first has these compiled at once
# make adapters  the tests of adapters, with DeepXDE and PaddleScience; in make test they
#              are skipped where these are not installed
# make lux     what users of Lux, Flux and others expect, and docs/lux.md and
#              docs/backends.md, in a Julia environment that has them:
#              JULIA_PROJECT=/path/to/it make lux; in make test those whose packages are
#              missing are skipped
# make quick   the tests of what changed since the last commit, nearest first, within two
#              minutes; SINCE=main for what changed since main
# make operator NAME=tanh  all comparisons of operators of programs with these letters, in Julia
#              that of the very name; some seconds
# make slow    the tests that take long, Python and Julia; not in make test; PART=n for the
#              n-th hundredth of them
# make matrix  the numeric tests under settings that stand for other machines, some minutes
#              each; CELL=mkl-sse4.2 for one of tests/matrix.py, CELL=n for the n-th in turn
# make device  whole test files on a device whose memory the host cannot touch (docs/devices.md),
#              a quarter of an hour on two cores; PART=n for the n-th of 40 parts in turn
# make all-tests  make test, adapters, and with PART=n that part of make slow, in one run
# make bench   compare with native Paddle and others (output/); QUICK=1 for less
# make bench-programs  programs beside native Paddle on nets of many kinds; QUICK=1 for less
# make bench-equations  steps of differential equations, cost a point; QUICK=1 for less
# make bench-training  steps of training in all libraries; QUICK=1 for less
# make bench-recurrent  recurrent layers in all libraries; QUICK=1 for less
# make bench-transforms  transforms without jit beside jit and PyTorch; QUICK=1 for less
# make bench-batches  many samples by vmap beside loops and PyTorch; QUICK=1 for less
# make bench-adapters  steps of DeepXDE's and PaddleScience's problems, with and without
# make bench-side-by-side  the same nets and equations in all libraries; QUICK=1 for less
# make bench-small-nets  calls and steps of small nets beside PyTorch, JAX and Julia's; QUICK=1 for less
# make bench-libraries  saved nets beside ONNX Runtime, PyTorch and JAX; QUICK=1 for less
# make bench-first-calls  the import and first calls, each in fresh processes; TIMES=3 for less
# make bench-lowered  lowered nets beside nets written by hand in Julia; QUICK=1 for less
# make bench-threads  calls a second of one thread of Julia and of two; QUICK=1 for less
# make bench-attention  attention as a whole, in blocks, and PyTorch's; QUICK=1 for less
# make bench-cores  values and gradients on one core and on all; QUICK=1 for less
# make bench-distributed  steps of one, two and four processes; QUICK=1 for less
# make bench-ranks  steps of ranks of MPI from Julia, where mpiexec and MPI.jl are
# make bench-real-nets  real architectures as programs beside native Paddle; QUICK=1 for less
# make bench-solved  differential equations solved by all libraries, error against seconds: hours;
#              MINUTES=1 SEEDS=1 JOBS=2 ONLY=Burgers SIDES=scan for less; QUICK=1 some minutes a problem
# make bench-recipes  recipes for equations on the problems of their papers, minutes
# make bench-all  all of these, an hour and more; make figures then writes docs by them
# make stress  random calls of both languages by the million, minutes (output/stress.png)
# make soak    constants of every kind on four Julia threads for ten minutes, then ten million
#              calls of machine code; MINUTES=1 CALLS=100000 for less
# make differential  every function and layer beside differences; writes docs/refusals.md
# make house   lines, functions of a call, files that know an operator; and goals
# make orders  how high derivatives of each operator go; writes docs/orders.md
# make docs    the documentation site, warnings as errors (output/site/index.html);
#              SITE_URL=https://example.org/docs/ for one that is published there
# make notebook  run docs/notebook.ipynb and keep what it shows
# make lint    ruff, mypy, import-linter, and a parse check of every Julia file
# make clean   remove what these made

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
export JULIA ?=

# Paddle's and BLAS's threads: one, so that figures compare.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Paddle's MKL has AVX2 on AMD's processors only where it is told (docs/performance.md).
ONE_THREAD += $(shell grep -qs AuthenticAMD /proc/cpuinfo && echo MKL_DEBUG_CPU_TYPE=5)

# In a log file bars of progress are written once a minute.
ifeq ($(shell test -t 2 && echo terminal),)
export TQDM_MININTERVAL ?= 60
endif

# A process that crashes ends the run; xdist would wait for its tests for ever.
ON_ALL_CORES := -n auto --max-worker-restart 0
SINCE ?= HEAD

.PHONY: demo examples test quick operator all-tests adapters lux slow matrix device differential orders house bench bench-programs \
	bench-side-by-side bench-small-nets bench-libraries bench-equations bench-training bench-recurrent bench-batches bench-transforms \
	bench-adapters bench-first-calls bench-lowered bench-cores bench-attention bench-solved bench-recipes \
	bench-distributed bench-threads bench-ranks bench-real-nets bench-all figures stress soak docs \
	notebook lint clean

demo: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W "ignore:No ccache" examples/demo.py

examples: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W "ignore:No ccache" examples/run.py

test: $(VENV)/installed
	$(RUN) -m pytest $(ON_ALL_CORES)

quick: $(VENV)/installed
	$(RUN) tests/quick.py $(SINCE)

operator: $(VENV)/installed
	$(if $(NAME),,$(error name an operator, as in make operator NAME=tanh))
	OPERATOR=$(NAME) $(ONE_THREAD) $(RUN) -m pytest -m "slow or not slow" -rP -k "$(NAME) or julia_gives" \
	  tests/programs/test_table.py tests/programs/test_transform_rules.py tests/programs/test_in_julia.py

adapters: $(VENV)/libraries
	DDE_BACKEND=paddle $(ONE_THREAD) $(RUN) -m pytest $(ON_ALL_CORES) tests/adapters

lux: $(VENV)/installed
	JULIA=required $(RUN) -m pytest tests/bridge/test_julia.py tests/test_readme.py \
	  -k "libraries/ or lux_ or interface or lux- or backends-"

slow: $(VENV)/installed
	$(RUN) -m pytest $(ON_ALL_CORES) -m slow $(if $(PART),--part $(PART))

all-tests: $(VENV)/libraries
	DDE_BACKEND=paddle $(RUN) -m pytest $(ON_ALL_CORES) $(if $(PART),--part $(PART))

matrix: $(VENV)/installed
	$(RUN) -W ignore tests/matrix.py $(CELL)

device: $(VENV)/installed
	$(RUN) -W ignore tests/device/run.py $(PART)

differential: $(VENV)/installed
	cd tests && $(ONE_THREAD) ../$(RUN) -W ignore -m differential.run

orders: $(VENV)/installed
	cd tests && $(ONE_THREAD) ../$(RUN) -W ignore -m programs.orders

house: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore tests/house.py

bench: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W "ignore:No ccache" benchmarks/run.py

bench-programs: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W "ignore:No ccache" benchmarks/programs.py
	if grep -qs AuthenticAMD /proc/cpuinfo; then \
	  $(ONE_THREAD) env -u MKL_DEBUG_CPU_TYPE $(RUN) -W "ignore:No ccache" benchmarks/programs.py --as-it-is; fi

bench-equations: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W "ignore:No ccache" benchmarks/equations.py
	$(ONE_THREAD) $(RUN) -W "ignore:No ccache" benchmarks/laplacians.py

bench-training: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/training.py
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/loops.py
	if command -v julia > /dev/null; then JULIA_PYTHONCALL_EXE=$(abspath $(VENV))/bin/python JULIA_CONDAPKG_BACKEND=Null \
	  $(ONE_THREAD) julia --project=$$(julia julia/environment.jl Optimisers Zygote | head -1) benchmarks/training.jl; fi

bench-recurrent: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/recurrent.py

bench-side-by-side: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/side_by_side.py

bench-libraries: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/libraries.py

bench-small-nets: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/small_nets.py
	if command -v julia > /dev/null; then $(ONE_THREAD) $(RUN) -W ignore benchmarks/small_nets_julia.py; fi

bench-transforms: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/transforms.py

bench-batches: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W "ignore:No ccache" benchmarks/batches.py

bench-adapters: $(VENV)/libraries
	DDE_BACKEND=paddle $(ONE_THREAD) $(RUN) -W ignore benchmarks/adapters.py

bench-first-calls: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/first_calls.py

bench-lowered: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/lowered.py

bench-attention: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/attention.py

bench-cores: $(VENV)/installed
	$(shell grep -qs AuthenticAMD /proc/cpuinfo && echo MKL_DEBUG_CPU_TYPE=5) $(RUN) -W ignore benchmarks/cores.py

bench-solved: $(VENV)/libraries
	cd benchmarks && $(ONE_THREAD) ../$(RUN) -W ignore -m solved.run

bench-recipes: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/recipes.py

bench-threads: $(VENV)/installed
	JULIA_PYTHONCALL_EXE=$(abspath $(VENV))/bin/python JULIA_CONDAPKG_BACKEND=Null $(ONE_THREAD) \
	  julia --threads=2 --project=$$(julia julia/environment.jl | head -1) benchmarks/threads.jl

bench-distributed: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/distributed.py

bench-ranks: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W ignore benchmarks/ranks.py

# With PaddleScience and DeepXDE where .venv has them: make .venv/libraries
bench-real-nets: $(VENV)/installed
	$(ONE_THREAD) $(RUN) -W "ignore:No ccache" benchmarks/real_nets.py

bench-all: bench-side-by-side bench-small-nets bench bench-programs bench-equations bench-training bench-recurrent bench-transforms bench-batches \
	bench-first-calls bench-lowered bench-threads bench-distributed bench-adapters bench-real-nets

figures: $(VENV)/installed
	$(RUN) benchmarks/figures.py

stress: $(VENV)/installed
	$(ONE_THREAD) $(RUN) tests/stress/run.py

soak: $(VENV)/installed
	$(ONE_THREAD) $(RUN) tests/stress/soak.py

docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@echo "The site: output/site/index.html"

notebook: $(VENV)/installed
	$(ONE_THREAD) $(RUN) docs/site/run_notebook.py

lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(RUN) tests/parse_julia.py

clean:
	rm -rf $(VENV) output dist .pytest_cache .ruff_cache .mypy_cache .hypothesis

# juliacall must have the version of the PythonCall in the Julia at hand, where there is one.
$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip # an old one is slow
	$(RUN) -m pip install --quiet --editable '.[demo,dev,docs]'
	$(RUN) -W ignore -c 'from paddle_chainrules import julia; print(julia.requirement())' \
		| xargs $(RUN) -m pip install --quiet
	touch $@

# PaddleScience pins versions of numpy and others that what is run here does not need.
$(VENV)/libraries: $(VENV)/installed
	$(RUN) -m pip install --quiet --no-deps deepxde paddlesci
	$(RUN) -m pip install --quiet colorlog einops h5py hydra-core imageio meshio pandas \
		pydantic pyevtk pyyaml requests scikit-optimize seaborn sympy tqdm typing-extensions wget
	touch $@
