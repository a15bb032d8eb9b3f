"""Which option gets the job done in time? Options, trials of them, and forecasts."""
