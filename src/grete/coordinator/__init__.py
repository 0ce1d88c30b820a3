"""The control plane: events, a pure decide(), actions, job-model calculation, the loop."""
