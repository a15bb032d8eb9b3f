"""When a job will be done. Pure functions of pace, failures and remaining work."""
