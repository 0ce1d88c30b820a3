"""Small projects that `grete init` writes: a job, its configuration, sample data, a test, a README."""
