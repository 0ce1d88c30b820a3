"""Operators' actions on a job, running or not: inspect, stop, rewind, overwrite, grow, delete. No web server."""

from grete.operations.job_handle import JobHandle as JobHandle
from grete.operations.job_handle import open_job as open_job
