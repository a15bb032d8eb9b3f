"""How it looks to a person, or to a program. Values in, text out; nothing here decides."""
