"""Which option gets the job done on time? Trials, sandbox, estimates, ranking, exports."""
