"""What is known of AMD GPUs and training on them, as data. ``rocsteady`` reads it.

The version is a calendar version, as that of tzdata: the year, the month, and a number.
"""

VERSION = "2026.11.0"
