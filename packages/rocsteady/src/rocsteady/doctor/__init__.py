"""What is this machine, and what is wrong with it? Facts, rules, variables, torch builds."""
