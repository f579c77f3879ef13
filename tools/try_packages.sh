#!/usr/bin/env bash
# Install, upgrade, downgrade, remove and purge the packages of dist/ on this machine, which is to be a bare one:
#
#   lab/chroot.sh trixie bash -c 'make packages && tools/try_packages.sh'
#
# The .deb comes from an apt repository that is signed with a key made here, the .rpm is signed with the same key; what
# was changed after signing must be refused. Afterwards every path of the machine is as before. Prints sizes and seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 2; }
if [ -e /opt/rad ]; then echo "/opt/rad is here already; take a bare machine" >&2; exit 2; fi
deb=$(echo "$PWD"/dist/rad-slurm_*_all.deb) rpm=$(echo "$PWD"/dist/rad-slurm-*.noarch.rpm)
work=$(mktemp -d) passed=0 had_slurm=$([ ! -d /etc/slurm ] || echo yes)
trap 'rm -rf "$work" /opt/rad' EXIT # it was not here before
chmod 755 "$work"
export DEBIAN_FRONTEND=noninteractive GNUPGHOME=$work/gnupg HOME=$work
apt-get update -qq
apt-get install -y -qq --no-install-recommends apt-utils gpg gpg-agent rpm >/dev/null

check() { # check WHAT COMMAND...: it must work
    local what=$1 began
    shift
    began=$(date +%s%N)
    "$@" >"$work/log" 2>&1 || { echo "FAILED: $what" >&2; cat "$work/log" >&2; exit 1; }
    passed=$((passed + 1))
    echo "$(($(date +%s%N) / 1000000 - began / 1000000)) ms  $what"
}
refused() { ! "$@"; }
paths() { # what a package could have left behind: every path with its kind, size and link
    find / -xdev \( -path "$PWD" -o -path "$work" -o -path /tmp -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/rpm \
        -o -path /var/cache -o -path /var/log -o -path /proc -o -path /sys -o -path /run -o -path /dev \) -prune -o \
        -name __pycache__ -prune -o -type f -printf '%p %s\n' -o -printf '%p %y %l\n' | grep -v -e '/etc/apt/' -e '^/opt d $' | LC_ALL=C sort # dpkg removes an empty /opt
}
works() {
    rad --version
    rad-estimate examples/models/resnet50_torchinfo.txt --batch-size 8 --json
    /opt/rad/venv/bin/radd --help
    /opt/rad/venv/bin/rad-monitor --help
    rad install --dry-run --gpu-memory-mib 40000 | grep 'keep /usr/lib/systemd/system/radd.socket' >/dev/null
}
hooks_do_no_harm() {
    local hook
    for hook in prolog epilog task_prolog; do SLURM_JOB_ID=1 timeout 60 "/etc/rad/$hook.sh" || return 1; done
}
rotates() { # by a logrotate that is unpacked alone, so that the machine stays as it was
    local file
    (cd "$work" && apt-get download -q logrotate libpopt0 && for file in logrotate_*.deb libpopt0_*.deb; do dpkg-deb -x "$file" tools; done) &&
        mkdir -p /var/log/rad && echo '{}' >/var/log/rad/events.jsonl &&
        LD_LIBRARY_PATH=$(dirname "$work"/tools/usr/lib/*/libpopt.so.0) "$work/tools/usr/sbin/logrotate" --force --state "$work/rotated" /etc/logrotate.d/rad &&
        [ ! -e /var/log/rad/events.jsonl ] && rm /var/log/rad/events.jsonl.1
}
count_pyc() { find /opt/rad -name '*.pyc' | grep -c .; }

# --- signing and the repository -------------------------------------------------------------------------------------
mkdir -m 700 "$GNUPGHOME"
key='Trial of RAD packages'
check 'make a key' gpg -q --batch --passphrase '' --quick-gen-key "$key" rsa2048 sign 1d
gpg --armor --export "$key" >"$work/key.asc"
repository() { # repository FILE...: made again and signed
    rm -rf "$work/apt" && mkdir "$work/apt" && cp "$@" "$work/apt"
    (cd "$work/apt" && apt-ftparchive packages . >Packages && apt-ftparchive release . >"$work/Release" &&
        gpg -q --batch --yes --clearsign -o InRelease "$work/Release")
}
newer=$work/rad-slurm_999_all.deb
repack() {
    dpkg-deb -R "$deb" "$work/newer" && sed -i 's/^Version: .*/Version: 999/' "$work/newer/DEBIAN/control" &&
        dpkg-deb --root-owner-group -b "$work/newer" "$newer"
}
check 'make a newer version' repack
check 'sign a repository of both' repository "$deb" "$newer"
echo "deb [signed-by=$work/key.asc] file:$work/apt ./" >/etc/apt/sources.list.d/rad-trial.list
trap 'rm -rf "$work" /opt/rad /etc/apt/sources.list.d/rad-trial.list' EXIT
update() { apt-get update -q -o Dir::Etc::sourcelist=sources.list.d/rad-trial.list -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any; }
check 'apt takes the repository' update
sed -i 's/ Packages$/ Packages2/' "$work/apt/InRelease"
check 'apt refuses a changed list' refused update
check 'sign it again' repository "$deb" "$newer"
check 'apt takes it again' update
version=$(dpkg-deb -f "$deb" Version)
printf x >>"$work/apt/${newer##*/}"
check 'apt refuses a changed package' refused apt-get install -y -q --no-install-recommends rad-slurm=999
cp "$newer" "$work/apt"

installed() { dpkg-query -W -f '${Package}\n' | sort; }
purge_newer() { installed | comm -13 "$work/installed" - | xargs -r apt-get purge -y -q; }

# --- the .deb -------------------------------------------------------------------------------------------------------
paths >"$work/before"
installed >"$work/installed"
check 'apt installs it' apt-get install -y -q --no-install-recommends "rad-slurm=$version"
check 'its programs work' works
check 'it is compiled' count_pyc
check 'rad install' rad install --key --gpu-memory-mib 40000
check 'logrotate takes its file' rotates
check 'apt upgrades it' apt-get install -y -q --no-install-recommends rad-slurm=999
check 'its programs work' works
check 'apt downgrades it' apt-get install -y -q --no-install-recommends --allow-downgrades "rad-slurm=$version"
check 'its programs work' works
check 'apt removes it' apt-get remove -y -q rad-slurm
check 'hooks without it do no harm' hooks_do_no_harm
check 'apt installs the file' bash -c 'cd dist && apt install -y ./rad-slurm_*_all.deb' # as docs/admin/install.md has it
check 'rad uninstall' rad uninstall
mkdir -p /etc/slurm && echo 'Prolog=/etc/rad/prolog.sh' >/etc/slurm/slurm.conf.before-rad-uninstall # as --edit-slurm leaves it
check 'apt purges it' apt-get purge -y -q rad-slurm
check 'apt purges what it recommends' purge_newer
rm /etc/slurm/slurm.conf.before-rad-uninstall
[ -n "$had_slurm" ] || rm -rf /etc/slurm # `rad install` made it
paths >"$work/after"
check 'nothing is left of the .deb' diff "$work/before" "$work/after"

# --- the .rpm -------------------------------------------------------------------------------------------------------
# Python is not in rpm's database here, so its one requirement is not checked (--nodeps); rpm's plugin that hides mounts
# from scripts wants a root that is a mount, which a chroot is not (--noplugins).
check 'sign the .rpm' rpmsign --define "_gpg_name $key" --addsign "$rpm"
check 'rpm knows the key' rpm --import "$work/key.asc"
check 'rpm verifies it' rpm --checksig "$rpm"
cp "$rpm" "$work/changed.rpm" && printf x | dd of="$work/changed.rpm" bs=1 seek=100000 conv=notrunc status=none
check 'rpm refuses a changed one' refused rpm --checksig "$work/changed.rpm"
paths >"$work/before"
check 'rpm installs it' rpm --noplugins -i --nodeps "$rpm"
check 'its programs work' works
check 'rpm installs it over itself' rpm --noplugins -U --nodeps --replacepkgs "$rpm"
check 'its programs work' works
check 'rpm removes it' rpm --noplugins -e rad-slurm
paths >"$work/after"
check 'nothing is left of the .rpm' diff "$work/before" "$work/after"

# --- an environment, as docs/admin/install.md has it ------------------------------------------------------------------------
environment() {
    python3 -m venv /opt/rad/venv &&
        /opt/rad/venv/bin/pip install --require-hashes -r requirements/node.txt &&
        /opt/rad/venv/bin/pip install --no-deps dist/rad_slurm-*.whl && /opt/rad/venv/bin/rad --version
}
check 'pip installs it, each file by its hash' environment
rm -rf /opt/rad
stat -c '%s bytes  %n' dist/rad-slurm*
echo "$passed passed, 0 failed"
