"""The program that `spark-submit` runs for a container: the module that its first word names, with the others.

It ends with the JVM that started it: a container that was killed by its JVM's process commits nothing any more.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1
_OF_INIT = 1


def main() -> None:
    """Run the module in this process."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == _OF_INIT:  # it has ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if folder != own]  # its modules are no top-level ones
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
