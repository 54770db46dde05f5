"""Where claims live and are decided atomically: one folder or file for each store, strangers to one another."""
