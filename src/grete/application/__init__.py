"""The application's side of a task: imported by workers, and by application processes beside them.

Nothing here needs more than the standard library, `grete.api`, `grete.errors` and `grete.model`, so it runs in any
environment that an application brings (see `start`).
"""
