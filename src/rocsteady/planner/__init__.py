"""Which way gets the job done in time? Ways, trials of them, and forecasts."""
