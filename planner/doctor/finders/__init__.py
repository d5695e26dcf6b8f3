"""One module for each thing that the doctor looks for."""
