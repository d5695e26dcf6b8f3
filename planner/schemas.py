"""`schema`: the published JSON Schemas of files, for editors."""

from __future__ import annotations

from importlib import resources

from libra_plan.errors import InputError

__all__ = ["schema"]

_OF_PROFILES = ("workload", "cluster", "profile", "switching")
_KNOWN = (*_OF_PROFILES, "manifest", "replan-policy")


def schema(name: str) -> str:
    """Return the JSON Schema of a kind of file; with it editors complete keys and mark mistakes.

    Parameters
    ----------
    name
        `workload`, `cluster`, `profile`, `switching`, `manifest` or `replan-policy`.

    Returns
    -------
    str
        The schema, as JSON.

    Raises
    ------
    InputError
        If there is no such kind of file.

    Examples
    --------
    >>> import json
    >>> import libra_plan as lp
    >>> json.loads(lp.schema("workload"))["title"]
    'libra-plan workload file'
    """
    if name not in _KNOWN:
        raise InputError("no schema has this name", got=name, allowed=", ".join(_KNOWN))
    if name == "replan-policy":
        from libra_plan.planner.controller.hysteresis import policy_schema

        return policy_schema()
    if name == "manifest":
        import json

        from libra_plan.planner.launchers.manifest import manifest_schema

        return json.dumps(manifest_schema(), indent=2, ensure_ascii=False)
    file = resources.files("libra_plan.profiles") / "schemas" / f"{name}.schema.json"
    return file.read_text(encoding="utf-8").rstrip("\n")
