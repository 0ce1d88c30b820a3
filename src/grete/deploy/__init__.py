"""Deployments: a job's coordinator with its container as one process that a cluster manager runs."""
