"""Pages of documentation and what a reader does with them: code blocks, commands, links."""
