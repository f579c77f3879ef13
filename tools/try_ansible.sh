#!/usr/bin/env bash
# Run the Ansible role with the package of dist/ on this machine, which is to be a bare one, twice, and take it back:
#
#   lab/chroot.sh trixie bash -c 'make packages && tools/try_ansible.sh'
#
# The second run must change nothing, an unusable rad.toml must be refused, and in the end nothing is left.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 2; }
for path in /opt/rad /etc/slurm/slurm.conf; do
    if [ -e "$path" ]; then echo "$path is here already; take a bare machine" >&2; exit 2; fi
done
package=$(echo "$PWD"/dist/rad-slurm_*_all.deb)
venv=$PWD/.rad/ansible work=$(mktemp -d) passed=0
trap 'rm -rf "$work" /opt/rad' EXIT # it was not here before
export ANSIBLE_ROLES_PATH=$PWD/distributions/ansible/roles ANSIBLE_LOCALHOST_WARNING=0 ANSIBLE_INVENTORY_UNPARSED_WARNING=0
export DEBIAN_FRONTEND=noninteractive ANSIBLE_PYTHON_INTERPRETER=/usr/bin/python3 LC_ALL=C.UTF-8
if [ ! -x "$venv/bin/ansible-playbook" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check 'ansible-core>=2.16,<3'
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-apt >/dev/null # what Ansible's module for apt speaks through
made_user=
id slurm >/dev/null 2>&1 || { useradd --system --no-create-home slurm && made_user=yes; }
head -c 32 /dev/urandom >"$work/key"
printf 'mode = "observe"\n[partition.gpu]\ncollocate = true\ngpu_memory_mib = 40000\n' >"$work/rad.toml"
printf 'moed = "observe"\n' >"$work/wrong.toml"
mkdir -p /etc/slurm
cat >"$work/play.yml" <<PLAY
- hosts: localhost
  connection: local
  roles:
    - role: rad_slurm
      rad_package: "$package"
      rad_machine: controller
      rad_key_file: $work/key
      rad_install: --node gpu[1-4] --gpus 4 --gpu-memory-mib 40330
PLAY

play() { # play NAME PATTERN [EXTRA...]: what ansible-playbook says at its end must match
    local name=$1 pattern=$2 began=$SECONDS code=0
    shift 2
    "$venv/bin/ansible-playbook" -i localhost, "$work/play.yml" "$@" >"$work/log" 2>&1 || code=$?
    if ! grep -qE "$pattern" "$work/log"; then
        echo "FAILED with status $code: $name" >&2
        cat "$work/log" >&2
        exit 1
    fi
    passed=$((passed + 1))
    echo "$((SECONDS - began)) s  $name: $(grep -E '^localhost +:' "$work/log" | tr -s ' ')"
}
check() {
    "${@:2}" || { echo "FAILED: $1" >&2; exit 1; }
    passed=$((passed + 1))
}

play 'a rad.toml that is wrong is refused' 'unknown key moed' -e "rad_toml=$work/wrong.toml"
play 'the role' 'changed=[1-9][0-9]* .*failed=0' -e "rad_toml=$work/rad.toml"
play 'the role again' 'changed=0 .*failed=0' -e "rad_toml=$work/rad.toml"
check 'rad works' rad --version
check 'the key is the slurm user'"'"'s alone' test "$(stat -c '%U %a' /etc/rad/key)" = 'slurm 600'
check 'rad.toml is the one that was brought' cmp -s "$work/rad.toml" /etc/rad/rad.toml
check 'rad install has nothing to do' bash -c '! rad install --dry-run --node gpu[1-4] --gpus 4 --gpu-memory-mib 40330 | grep -E "^(write|update) "'
echo 'Prolog=/etc/rad/prolog.sh' >/etc/slurm/slurm.conf
play 'it is not taken back while slurm.conf names it' 'failed=1' -e rad_state=absent
check 'the hook is still there' test -x /etc/rad/prolog.sh
rm /etc/slurm/slurm.conf
play 'the role takes it back' 'changed=[1-9].*failed=0' -e rad_state=absent
play 'and again' 'changed=0 .*failed=0' -e rad_state=absent
check 'nothing is left' bash -c '! ls /opt/rad /usr/bin/rad /etc/rad/prolog.sh /usr/lib/systemd/system/radd.* /var/cache/rad-slurm 2>/dev/null | grep .'
apt-get purge -y -qq rad-slurm >/dev/null 2>&1 || true
rm -rf /etc/rad
[ -z "$made_user" ] || userdel slurm
rmdir /etc/slurm 2>/dev/null || true
echo "$passed passed, 0 failed"
