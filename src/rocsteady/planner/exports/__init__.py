"""How is a way of the plan done elsewhere? One file a place: a value in, text out."""
