import os

from quixstreams import Application

application = Application(broker_address=os.environ["BROKER"])
topic = application.topic("clicks", value_serializer="str")
with application.get_producer() as producer:
    for page in ("home", "cart", "home"):
        message = topic.serialize(key=page, value=page)
        producer.produce(topic.name, key=message.key, value=message.value)
