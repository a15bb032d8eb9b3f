"""One file an engine: how an attempt's processes come into being."""
