"""Choose a build and the environment that it needs."""
