"""The cases, grouped by what they are about, and what they have in common."""
