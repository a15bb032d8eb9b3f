"""The operating system: children, keeper, /proc, terminal modes."""
