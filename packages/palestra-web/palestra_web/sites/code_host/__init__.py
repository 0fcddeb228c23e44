"""A code host with tickets, wiki and forum: fossil, asked anew for each request."""
