# Each target does all the set-up it needs; everything made lies under .rad/ (or where `make` says).
PYTHON ?= python3
LAB = $(PYTHON) -m lab

.PHONY: help demo unit test test-all test-cluster test-train test-matrix lint coverage release packages site check setup lab-up lab-down clean test-faults

demo: ## four simulated GPUs, a real Slurm, jobs that share, run out of memory and recover
	$(LAB) --name demo demo

unit: ## quick unit tests: no Slurm, no root, no torch
	$(LAB) unit $(if $(ARGS),-- $(ARGS))

test: ## unit, Lua and flow tests, and a few on a real Slurm, in ten minutes
	$(LAB) test $(if $(ARGS),-- $(ARGS))

test-all: ## all test tiers that this machine can run
	$(LAB) test-all $(if $(COVERAGE),--coverage) $(ARGS)

test-train: ## the tests that need torch, in an environment of their own
	$(LAB) test-train $(if $(COVERAGE),--coverage) -- $(ARGS)

coverage: ## what `make test-all COVERAGE=1` and `make test-train COVERAGE=1` measured, against a floor
	$(LAB) coverage

test-matrix: ## the tests on a real Slurm, on every Slurm that Debian carries
	lab/matrix.sh $(SUITES) -- $(ARGS)

lint: ## style, formatting, types; shell scripts and Lua
	$(LAB) lint

release: ## wheels, sdists and a bill of materials in dist/, tried on every Python that is here
	$(LAB) release

packages: ## a .deb and an .rpm of the last commit, in dist/
	$(LAB) packages

site: ## the manual and a reference made from the code, in .rad/site/html
	$(LAB) site

check: lint test-train test-all ## what CI runs

help: ## this list
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## /{printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## only the set-up: Slurm where it is missing, the virtual environment, the package
	$(LAB) setup

lab-up: setup ## a private Slurm to play with; see `python3 -m lab --help`
	$(LAB) up

test-cluster: ## only the tests on a real Slurm
	$(LAB) test-all -- tests/cluster $(ARGS)

test-faults: ## faults on a running cluster, the short form; all with RAD_FAULTS=long
	$(LAB) test-all -- tests/faults $(ARGS)

lab-down: ## stop it
	$(LAB) down

clean: ## stop what runs and remove all that was made
	$(LAB) clean
