"""The `libra-plan` command: thin verbs over the planner; the only place that prints."""
