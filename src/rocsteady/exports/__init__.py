"""How is an option of the plan done elsewhere? One file a place: a value in, text out."""
