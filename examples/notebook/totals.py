import grete


class Totals(grete.StreamTask):
    """The total of each customer's orders."""

    def init(self, context: grete.TaskContext) -> None:
        self.totals = context.store("totals")

    def process(self, envelope, collector, coordinator) -> None:
        order = envelope.message
        total = (self.totals.get(order["customer"]) or 0) + order["cents"]
        self.totals.put(order["customer"], total)
        collector.send("local.totals", {"customer": order["customer"], "cents": total}, key=order["customer"])
