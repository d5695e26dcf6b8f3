"""The re-plan loop: look at what runs, decide whether a change pays, and remember why."""
