#!/bin/bash
# One run of a trace on this host's GPUs, or on simulated ones, as root, in less than ten minutes:
#
#   bench/replay/run.sh OUT --trace philly_t1.csv --policy magm [--estimates rad] [--compress 120] [--stand-in]
#
# `--help` shows all options. On a host without Slurm, RAD_DEBS is a folder of Slurm's .deb files; RAD_TORCH_PYTHON is a
# Python that has torch (else python3). With --stand-in it needs neither a GPU nor torch, only `python3 -m lab setup`;
# with --on-cpu torch trains for real on the CPU, with simulated GPUs.
set -u
checkout=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
export RAD_TORCH_PYTHON=${RAD_TORCH_PYTHON:-$(command -v python3)} PYTHONUNBUFFERED=1
export PYTHONPATH=$checkout/bench:$checkout
case " $* " in
*" --help "* | *" --stand-in "* | *" --on-cpu "* | *" --plan "* | *" --compressions "*) venv=$checkout/.rad/venv ;;
*)
    venv=${RAD_VENV:-/opt/rad/venv}
    export venv debs=${RAD_DEBS:+$(realpath "$RAD_DEBS")}
    # shellcheck source=/dev/null
    (cd "$checkout" && . tests/gpu/host.sh && prepare) || exit 1
    ;;
esac
exec "$venv/bin/python" -m "replay.${REPLAY_PROGRAM:-run}" "$@"
