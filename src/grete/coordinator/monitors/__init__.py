"""Monitors: they watch inputs, containers and queries, and report what they find. They never act.

Each monitor is a small class whose `observe(facts, now_s)` judges facts and does no I/O; `watch.Monitors` reads the
facts through the ports and polls from one thread. To hook them to a coordinator:

    monitors = Monitors(
        Watched(
            config=lambda: config,  # the configuration in force, kept
            model=calculated.model,
            modelled=partitions,  # the counts that calculate() got
            systems=inputs,  # SystemAdmin by name; all regex systems, too
            checkpoints=LatestOffsets(checkpoint_log).read,
            containers=view.container_facts,
        ),
        clock,
        on_finding=lambda finding: loop.post(Found(finding)),
    )
    view.monitors = monitors  # lag and problems in status, HTTP and metrics
    monitors.start()
    stack.callback(monitors.close)  # before the systems are closed

`on_finding` is called from the monitors' thread. With a new job model, close these and make new ones.
"""
