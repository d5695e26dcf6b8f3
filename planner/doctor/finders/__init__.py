"""One function for each thing that can hold the pipeline back."""
