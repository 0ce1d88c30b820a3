"""The composition root: puts ports, back ends, control plane and data plane together. The CLI talks to this."""

from grete.assembly.home import grete_home as grete_home
from grete.assembly.home import jobs as jobs
from grete.assembly.job_handle import JobHandle as JobHandle
from grete.assembly.job_handle import open_job as open_job
from grete.assembly.run import RunOptions as RunOptions
from grete.assembly.run import run_job as run_job
