# The training loop, its phases and its guards.
