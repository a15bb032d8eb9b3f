"""What this computer is: read under a root, as frozen values. Nothing is judged here."""
