"""Monitors: they watch inputs, containers and queries, and report what they find. They never act.

Each monitor is a small class whose `observe(facts, now_s)` judges facts and does no I/O; `watch.Monitors` reads the
facts through the ports and polls from one thread, which calls `on_finding`. `coordinator.model_watch` starts them for
each job model, and closes those of the model before.
"""
