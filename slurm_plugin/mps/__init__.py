"""NVIDIA MPS, one control daemon per GPU and user: start, ask, count, stop, mend.

    RUN/mps/GPU-.../1000.lock        taken while anything below changes; never removed
    RUN/mps/GPU-.../1000/state.json  root's: the daemon's pid and start time, and the jobs that use it
    RUN/mps/GPU-.../1000/pipe/       the user's, mode 0700: where clients meet the daemon
    RUN/mps/GPU-.../1000/log/        the user's

What was found on real hardware (driver 580, CUDA 13) and shapes this package:

* `-d` hangs when its output is a pipe; `-f` in a session of its own with output to a file does not.
* A client whose pipe directory has no daemon runs without MPS and says nothing, so a daemon is believed only once it
  has answered, and its pipe directory goes when it goes.
* A client that is pointed at another user's daemon fails with CUDA error 805, so each user has daemons of their own.
* A limit by `set_default_device_pinned_mem_limit` binds only servers started later, one by
  `set_device_pinned_mem_limit PID` only clients that connect later: both are sent before the job starts. A client's
  own limit (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT) counts below them; a larger one does not.
* When the daemon or its server is killed, running clients fail with CUDA error 806; when one client faults (an illegal
  address), the others fail with its error; after both a new client works at once, and `kill -9` of one client hurts
  nobody. So nothing that has jobs on it is ended to mend it.

Source: https://docs.nvidia.com/deploy/mps/, "Appendix: Tools and Interface Reference".
"""

from slurm_plugin.mps.node import Mps

__all__ = ["Mps"]
