"""Plans, diagnoses, decisions and tables as text, SVG and HTML; everything here returns strings."""
