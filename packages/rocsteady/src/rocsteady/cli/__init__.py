"""What the user typed: one file a command. Parse, call, render, exit code."""
