"""The composition root: puts ports, back ends, control plane and data plane together, and runs a job."""

from grete.assembly.run import RunOptions as RunOptions
from grete.assembly.run import run_job as run_job
