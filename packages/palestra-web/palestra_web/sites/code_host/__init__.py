"""A code host with tickets, wiki and forum: fossil, started once per request."""
