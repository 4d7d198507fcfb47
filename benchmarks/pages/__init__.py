"""From the figures of a benchmark to its page: bars, tables and a plot."""
