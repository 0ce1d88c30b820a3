import bytewax.operators as op
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSource

flow = Dataflow("clicks")
clicks = op.input("in", flow, TestingSource(["home", "cart", "home"]))
counts = op.stateful_map(
    "count", op.key_on("key", clicks, str), lambda count, _: ((count or 0) + 1, (count or 0) + 1)
)
op.output("out", counts, StdOutSink())
