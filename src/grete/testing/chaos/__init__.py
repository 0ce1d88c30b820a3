"""Kills what a running job consists of, at random, and checks that nothing was lost or done twice (S2-127)."""
