"""The program that YARN's ApplicationMaster runs; `spark-submit` takes a file, not a module."""

import sys

from grete.deploy.attempt import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
