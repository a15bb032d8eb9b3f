"""How the rooms below combine into a run, a drill, a trial, a probe session or an init."""
