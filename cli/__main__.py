"""Run the program as `python -m libra_plan.cli`."""

from libra_plan.cli.app import main

main()
