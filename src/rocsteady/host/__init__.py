"""How we touch the operating system. ``subprocess`` is used in this room only."""
