"""A folder on the PYTHONPATH of the user's programs: the hook alone is in it."""
