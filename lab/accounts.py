"""Accounting of a private cluster: a dedicated MariaDB and slurmdbd, for tests that request them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from lab.daemons import TIME_FACTOR, Daemons, wait_until
from lab.place import Place
from slurm_plugin.core.clock import Clock
from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import run
from slurm_plugin.slurm.files.conf_files import settings_of

DEBIAN_PACKAGES = ("mariadb-server", "slurmdbd", "slurm-wlm-mysql-plugin")
PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacctmgr")
PORTS = ("mariadb", "slurmdbd")
USERS = ("root", "games")
"""Users that may submit: Slurm 26.05 finds no association of the user `nobody`."""
_UP_S = 30.0 * TIME_FACTOR

SLURM_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={slurmdbd}
AccountingStoragePass={munge_socket}
AccountingStoreFlags=job_comment
"""
"""Lines of slurm.conf; counting and enforcement are left to the site."""

_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={munge_socket}
DbdHost=localhost
DbdPort={slurmdbd}
SlurmUser={user}
LogFile={log}/slurmdbd.log
PidFile={run}/slurmdbd.own.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mariadb}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CommitDelay=1
"""

_INIT_SQL = """\
create database if not exists slurm_acct_db;
create user if not exists slurm@'127.0.0.1' identified by 'slurm';
create user if not exists slurm@localhost identified by 'slurm';
grant all on slurm_acct_db.* to slurm@'127.0.0.1';
grant all on slurm_acct_db.* to slurm@localhost;
"""


def slurm_conf(place: Place, ports: Mapping[str, int]) -> str:
    """Return the lines of slurm.conf that configure accounting."""
    return SLURM_CONF.format(slurmdbd=ports["slurmdbd"], munge_socket=place.munge_socket)


def start(
    place: Place,
    daemons: Daemons,
    ports: Mapping[str, int],
    *,
    user: str,
    env: Mapping[str, str],
    clock: Clock,
) -> None:
    """Start both and register the cluster, one account and the users.

    Args:
        place: The cluster's folder.
        daemons: Its daemons.
        ports: Ports of "mariadb" and "slurmdbd".
        user: SlurmUser.
        env: Environment of Slurm's programs.
        clock: Time.

    Raises:
        LabError: One of them does not start.
        CommandError: A command fails.
    """
    folder = place.root / "db"
    folder.mkdir(mode=0o755)
    owner = pwd.getpwnam("mysql")
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    sql = place.etc / "init.sql"
    sql.write_text(_INIT_SQL)
    data, socket = folder / "data", folder / "s"
    run(
        [
            *("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}", "--skip-test-db"),
            "--auth-root-authentication-method=socket",
        ],
        timeout_s=_UP_S,
        env=env,
    )
    argv = [
        *("mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}", f"--socket={socket}"),
        *(f"--port={ports['mariadb']}", "--bind-address=127.0.0.1", f"--init-file={sql}"),
        *(
            "--innodb-buffer-pool-size=64M",
            "--innodb-lock-wait-timeout=900",
            "--loose-innodb-snapshot-isolation=OFF",
        ),
        *("--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"),
    ]
    daemons.start("mariadb", argv, env=env)

    def answers() -> bool:
        query = ["mariadb", "--no-defaults", "-S", str(socket), "-e", "show grants for slurm@localhost"]
        return socket.is_socket() and _works(query, env)

    wait_until("MariaDB answers", answers, timeout_s=_UP_S, clock=clock)
    conf = place.etc / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(
        _SLURMDBD_CONF.format(
            **ports, munge_socket=place.munge_socket, user=user, log=place.log, run=place.run
        )
    )
    os.chown(conf, pwd.getpwnam(user).pw_uid, -1)
    daemons.start("slurmdbd", ["slurmdbd", "-D"], env=env, user=user)
    ask = ["sacctmgr", "-n", "show", "cluster"]
    wait_until("slurmdbd answers", lambda: _works(ask, env), timeout_s=_UP_S, clock=clock)
    name = settings_of(place.slurm_conf)["clustername"]
    for words in (("cluster", name), ("account", "lab"), ("user", ",".join(USERS), "account=lab")):
        run(["sacctmgr", "-i", "add", *words], timeout_s=_UP_S, env=env)


def _works(argv: list[str], env: Mapping[str, str]) -> bool:
    try:
        run(argv, timeout_s=5, env=env)
    except CommandError:
        return False
    return True
