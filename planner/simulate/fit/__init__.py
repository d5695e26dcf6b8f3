"""Fit worlds to users' recordings; figures that these do not contain stay those of the base world."""
