"""The planner beside the real Samza's: random stories of one job's starts, through both, compared byte for byte.

`stories` makes them from a number, `samza` and `ours` plan them, `compare` finds the first difference, `accepted`
knows the differences that are meant, each with its reason, and `campaign` counts.
`python -m grete_workbench.plans` runs it.
"""
