"""The subcommands of `tonnage`: one module each, with `add_arguments` and `run`."""
