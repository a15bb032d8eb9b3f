"""Who starts, stops and restarts an attempt. The only room that acts on a run."""
