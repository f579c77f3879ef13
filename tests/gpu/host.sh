# shellcheck shell=bash
# What a GPU host without systemd or registries needs before a private Slurm runs on it. Sourced, from the checkout's
# root, with RAD_TORCH_PYTHON, venv (where our package goes) and debs (a folder of .deb files, or "") set.
: "${RAD_TORCH_PYTHON:?}" "${venv:?}" "${debs=}"

unpack() { # what the packages' own scripts would do, as far as a cluster without systemd needs it
    local root; root=$(mktemp -d)
    for deb in "$debs"/*.deb; do dpkg -x "$deb" "$root"; done
    cp -a "$root"/usr/bin/. /usr/bin/ && cp -a "$root"/usr/sbin/. /usr/sbin/
    # Only what is missing: the machine's own libraries stay.
    for lib in "$root"/usr/lib "$root"/lib; do [ ! -d "$lib" ] || cp -an "$lib"/. /usr/lib/; done; mkdir -p /usr/share/lua && cp -an "$root"/usr/share/lua/. /usr/share/lua/
    for program in slurmctld slurmd slurmstepd; do ln -sfn "$program-wlm" "/usr/sbin/$program"; done
    ldconfig
    for user in slurm munge; do id "$user" >/dev/null 2>&1 || useradd -r -M -s /usr/sbin/nologin "$user"; done
}

install() { # a virtual environment of its own, as on a node; torch and the tests' tools are lent to it
    "$RAD_TORCH_PYTHON" -m venv --without-pip "$venv"
    local site; site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$RAD_TORCH_PYTHON" - "$site" <<'PY'
import pathlib, sysconfig, sys
pathlib.Path(sys.argv[1], "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
PY
    local source; source=$(mktemp -d)
    cp -a setup.cfg pyproject.toml README.md LICENSE slurm_plugin gpumemnet prolog epilog gres_conf "$source"
    "$venv/bin/python" -m pip install -q --no-index --no-deps --no-build-isolation "$source"
    cp -n gpumemnet/weights/*.z "$site/gpumemnet/weights/" # of baselines, which a node's package goes without
}

prepare() { # Slurm, our package, and the driver's tools where hooks find them
    [ -n "$debs" ] && ! command -v slurmctld >/dev/null && unpack
    [ -x "$venv/bin/rad" ] || install || return 1
    # Slurm starts hooks without PATH and library path, so the driver must be where the system looks.
    for tool in nvidia-smi nvidia-cuda-mps-control nvidia-cuda-mps-server; do
        found=$(command -v "$tool" || ls /usr/local/nvidia/bin/"$tool" 2>/dev/null) || continue
        [ -e "/usr/bin/$tool" ] || ln -s "$found" "/usr/bin/$tool"
    done
    if ! ldconfig -p | grep -q libcuda.so.1 && [ -d /usr/local/nvidia/lib64 ]; then
        echo /usr/local/nvidia/lib64 >/etc/ld.so.conf.d/nvidia.conf && ldconfig
    fi
}
