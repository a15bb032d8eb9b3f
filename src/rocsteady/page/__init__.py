"""The report of a run as one self-contained page: HTML, SVG, and no network."""
