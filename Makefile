# make demo: the main job. make test: everything that is checked. Both set up .venv by themselves, once.
#   PYTHON=python3.12   another Python for .venv
#   TORCH=2.11.0        another release of torch than the pinned one

PYTHON ?= python3
TORCH ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready-$(TORCH)
C_SOURCES = $(shell find src examples benchmarks tests -not -path '*/golden/*' \
	\( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \))

.PHONY: demo test lint bench setup clean

demo: $(READY)
	@$(BIN)/python examples/demo.py

# Two workers on two cores: a thread that waits must not spin in the other's way.
test: lint
	@OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/clang-format --dry-run -Werror $(C_SOURCES)

bench: $(READY)
	@$(BIN)/python -m benchmarks

setup: $(READY)

# A stamp carries the release of torch in its name, and there is one at a time: another TORCH sets up again.
$(READY): pyproject.toml constraints.txt tools/setup.py
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "oneop needs Python 3.11 or" \
	  "newer, and $(PYTHON) is not: apt install python3 python3-venv (Debian, Ubuntu), dnf install python3 (Fedora)," \
	  "brew install python (macOS); make PYTHON=python3.12 takes another than python3" >&2; exit 1; }
	@rm -f $(VENV)/ready-*
	@"$(PYTHON)" tools/setup.py $(VENV) $(TORCH)
	@touch $@

clean:
	rm -rf $(VENV) build dist
