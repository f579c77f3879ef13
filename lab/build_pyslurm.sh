#!/usr/bin/env bash
# Build pyslurm for this machine's Slurm and install it into a virtual environment.
#
# usage: lab/build_pyslurm.sh VENV
#
# pyslurm 25.11.2 is made for Slurm 25.11. Against 26.05 its generated C compiles once the functions that now take a
# slurm_step_id_t are given one (pyslurm_2605.h); against older versions it does not. Debian packages no pyslurm.
# Good enough to test our back end against a running 26.05; a site installs the pyslurm made for its Slurm.
set -euo pipefail

venv=$(realpath "${1:?usage: lab/build_pyslurm.sh VENV}")
here=$(cd "$(dirname "$0")" && pwd)
version=25.11.2

# Looked up, not imported: on import pyslurm reads slurm.conf and ends the process where there is none.
found() { "$venv/bin/python" -I -c 'import sys, importlib.util as u; sys.exit(u.find_spec("pyslurm") is None)'; }
if found; then exit 0; fi
case $(slurmctld -V) in *" 26.05."* | *" 25.11."*) ;; *)
    echo "pyslurm: $(slurmctld -V) has no pyslurm that builds here; Slurm's own commands are used" >&2
    exit 1
    ;;
esac
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev python3-dev libslurm-dev >/dev/null
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cd "$build"
"$venv/bin/pip" install -q setuptools wheel Cython packaging
"$venv/bin/pip" download -q --no-deps --no-binary :all: --no-build-isolation "pyslurm==$version"
tar xf pyslurm-*.tar.gz --strip-components 1
sed -i 's/if Version(self.version) != Version(SLURM_VERSION):/if False:/' setup.py
CFLAGS="-include $here/pyslurm_2605.h" SLURM_LIB_DIR=/usr/lib/x86_64-linux-gnu PYSLURM_BUILD_JOBS=2 \
    "$venv/bin/pip" install -q --no-build-isolation --no-deps .
found && echo "pyslurm $version installed in $venv"
