"""What other people's tools watch jobs with: alert rules for Prometheus, and a board for Grafana."""
