"""Whether a run is alive, slow or stuck, and which rank is to blame."""
