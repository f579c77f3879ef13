"""NVIDIA MPS, one control daemon per GPU and server key: start, query, count jobs, stop, repair.

    RUN/mps/GPU-.../1000.lock        held while anything below changes; never removed
    RUN/mps/GPU-.../1000/state.json  the daemon's pid and start time, and the jobs that use it with their users
    RUN/mps/GPU-.../1000/pipe/       where clients connect to the daemon; only users with a job on it may enter
    RUN/mps/GPU-.../1000/daemon.log  output of daemon and server

The folder's name is the server's key (core/placement/server_keys.py): `1000` serves this user, `a` and twelve hex
digits a Slurm account, `all` every job on the GPU, `j7` job 7 alone.

Root owns all of it, and runs the processes.

Findings on real hardware (driver 580, CUDA 13) that shape this package:

* `-d` hangs when its output is a pipe; `-f` in a separate session with output to a file does not.
* A client whose pipe directory has no daemon silently runs without MPS, so a daemon counts as started only once it has
  answered, and its pipe directory is removed with it.
* A daemon run by the user, and one run by root without `-multiuser-server`, let the user lift the limit; root's with
  `-multiuser-server` refuses ("Control daemon settings can only be modified by the user who started it or by the root
  user"). That costs nothing: three trainings of one user ran at 25,064 images/s through it and at 23,911 through the
  user's daemon (9,184 alone, 19,955 without MPS).
* One such daemon for all users runs two users faster (32,308 against 25,185 images/s for two trainings each), but an
  illegal address in one user's client ends the other's (`mps_server`). 48 clients of one user left no slot for
  another's, so a job that may find no slot gets a server of its own. A daemon for each job gains nothing over time
  slicing (20,225).
* A limit by `set_default_device_pinned_mem_limit` applies only to servers started later, one by
  `set_device_pinned_mem_limit PID` only to clients that connect later: both are sent before the job starts. A client's
  own limit (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT) counts if it is lower; a larger one does not. So a client that drops its
  own limit has the largest limit among its server's jobs; the guard ends it for what it takes above its own.
* When the daemon or its server is killed, running clients fail with CUDA error 806; when one client faults (an illegal
  address), the others fail with its error; after both a new client works at once, and `kill -9` of one client does not
  affect the others. So a daemon or server that has jobs is never ended to repair it.

Source: https://docs.nvidia.com/deploy/mps/, "Appendix: Tools and Interface Reference".
"""

from slurm_plugin.mps.servers import Mps

__all__ = ["Mps"]
