"""Is it alive, slow, or stuck, and where? Snapshots, waits, the verdict, the culprit rank."""
