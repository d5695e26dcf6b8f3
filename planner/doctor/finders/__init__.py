"""One function for each problem that can slow the pipeline down."""
