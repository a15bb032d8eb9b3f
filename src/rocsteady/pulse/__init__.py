"""Is the run alive, slow or stuck? The verdict is a pure function of observations and a clock."""
