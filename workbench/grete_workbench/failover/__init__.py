"""How long a job has no leader when its coordinator is killed, on each service that elects leaders."""
