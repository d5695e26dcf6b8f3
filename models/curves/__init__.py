"""Fitted curves: a form with its correction, its domain and its errors, for each measured layout."""
