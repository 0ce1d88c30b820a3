"""The only way to a Kafka broker: connections, logins, topics, producers, errors."""
