"""The re-plan loop: observe what runs, decide whether a change pays, and record why."""
