"""The program `tonnage`: one module a subcommand, each with `add_arguments` and `run`."""
