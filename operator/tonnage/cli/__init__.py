"""The program `tonnage`, which runs the subcommands of `cli.commands`."""
