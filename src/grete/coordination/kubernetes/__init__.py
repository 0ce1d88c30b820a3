"""Leadership on Kubernetes: a Lease for each scope, through the few calls of the API server that this needs."""
