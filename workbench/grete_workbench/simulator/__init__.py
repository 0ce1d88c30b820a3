"""A seeded world in which jobs run: coordinators, containers, stores, clocks, network, and whatever goes wrong.

Everything in it happens because of one number, the seed: the same seed does the same, step by step, on every machine.
After each step the promises of `docs/guarantees.md` are checked by readers of their own; at the end all faults stop
and the job has to get to the end of its input and to stop. What is simulated is the world. What runs in it is the
product: logs, leader election, coordinator stream, job model, the loop and its decisions, assignments, heartbeats'
meaning, fences, lineages, tasks, stores on disk and commits. Spark's engine, HTTP and threads are a few lines each.

`python -m grete_workbench.simulator --seeds 2000` runs it.
"""
