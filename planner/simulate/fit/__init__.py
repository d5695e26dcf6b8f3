"""Worlds from users' own recordings: what they hold is fitted, what they do not stays the base world's."""
