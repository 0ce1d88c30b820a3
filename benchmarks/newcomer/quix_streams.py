import os

from quixstreams import Application

application = Application(
    broker_address=os.environ["BROKER"], consumer_group="clicks", auto_offset_reset="earliest"
)
frame = application.dataframe(application.topic("clicks", value_deserializer="str"))


def count(page, state):
    state.set("count", state.get("count", 0) + 1)
    return {"page": page, "count": state.get("count")}


frame = frame.apply(count, stateful=True).update(print)
application.run()
