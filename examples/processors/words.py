"""The application of `tour.py`: each count of a word is a message."""

import grete


class CountWords(grete.StreamTask):
    """Counts words. The store survives restarts and kills, and moves with its task from process to process."""

    def init(self, context: grete.TaskContext) -> None:
        """See StreamTask."""
        self.counts = context.store("counts")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        """See StreamTask."""
        for word in envelope.message.split():
            count = (self.counts.get(word) or 0) + 1
            self.counts.put(word, count)
            collector.send("local.tour-counts", count, key=word)
