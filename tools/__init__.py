"""Programs of a developer: see ARCHITECTURE.md for what each is and what it may use."""
