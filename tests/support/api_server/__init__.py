"""The API server in memory, what it answers late or wrongly, and the contract with the real one."""
