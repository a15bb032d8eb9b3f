"""How is an option of the plan done elsewhere? A value in, text out: one template a target."""
