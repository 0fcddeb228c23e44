"""A web app over run folders: what the agent did, and what training made of it."""
