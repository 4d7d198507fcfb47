"""What the subcommands read: files, dumps, live clusters and Hubs."""
