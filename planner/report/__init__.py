"""What people read, as text, SVG and HTML. Everything here returns strings; only `cli` prints."""
