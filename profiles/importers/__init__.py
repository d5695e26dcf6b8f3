"""Import what users already have: benchmark results and training logs become profiles.

`run.import_profile` is the door; `registry.FORMATS` lists the formats, one module each.
"""
